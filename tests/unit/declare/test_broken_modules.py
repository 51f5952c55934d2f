"""Modules with one mistake each: every one gets its own error, at its line, with its own fix."""

from pathlib import Path

import pytest

from perago import TaskDefinitionError
from perago.declare.loading import load_module

BROKEN = Path(__file__).parent / "broken"

EXPECTED = {
    "absolute_pattern": ("starts with '/'", "such as 'raw/*.jsonl'"),
    "async_body": ("is async", "write def clean(ws: Path, params: CleanParams) -> CleanResult:"),
    "bad_name": ("name can't be 'broken/clean'", "text on one line without '/'"),
    "default_value": ("has a default value", "write def clean(ws: Path, params: CleanParams)"),
    "dict_params": ("is a dict[str, float]", "params: CleanParams)"),
    "duplicate_name": ("is declared twice", "name='broken.duplicate_name_2'"),
    "escaping_prefix": ("prefix can't be '../songs'", "such as 'songs'"),
    "impossible_counts": ("min_count (9) is more than", "write min_count=3, max_count=9"),
    "later_result": ("takes rank.result.songs", "move broken_later_result_rank before"),
    "missing_dependency": ("No module named", "install 'a_package_nobody_has'"),
    "missing_params": ("takes 1 parameter", "write def clean(ws: Path, params: CleanParams)"),
    "retries_out_of_range": ("count can't be 11", "from 0 to 10"),
    "root_model_result": ("RootModel Songs", "class Songs(BaseModel)"),
    "unknown_argument": ("has no argument 'owner_mail'", "did you mean 'owner_email'?"),
    "unresolved_annotation": ("'Path' can't be resolved", "not under 'if TYPE_CHECKING:'"),
    "untyped_result": ("return value has no annotation", "-> CleanResult:"),
    "wrong_param_value": ("is 'half a minute'", "correct min_seconds"),
    "wrong_workspace_type": ("'ws' is a str", "write def clean(ws: Path,"),
}


def test_every_broken_module_is_expected():
    assert {file.stem for file in BROKEN.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_broken_module_is_refused_at_its_line_with_its_fix(name):
    message, fix = EXPECTED[name]
    with pytest.raises(TaskDefinitionError) as refused:
        load_module(str(BROKEN / f"{name}.py"))
    assert f"{name}.py:" in refused.value.message
    assert message in refused.value.message
    assert fix in refused.value.fix
