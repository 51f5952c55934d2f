"""Signatures that can't be a task's: each is refused with the line as it should be."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import TaskDefinitionError, WorkspaceSpec, task


class P(BaseModel):
    pass


class R(BaseModel):
    pass


def extra_parameter(ws: Path, params: P, more: int) -> R: ...
def any_positional(ws: Path, *params: P) -> R: ...
def any_keyword(ws: Path, params: P, **more: int) -> R: ...
def keyword_only(ws: Path, *, params: P) -> R: ...
def default(ws: Path, params: P = None) -> R: ...
def text_workspace(ws: str, params: P) -> R: ...
def swapped(params: P, ws: Path) -> R: ...
def no_annotation(ws: Path, params) -> R: ...
def no_workspace_annotation(ws, params: P) -> R: ...
def returns_nothing(ws: Path, params: P) -> None: ...
def returns_dict(ws: Path, params: P) -> dict: ...
def base_model(ws: Path, params: BaseModel) -> R: ...
def optional_params(ws: Path, params: P | None) -> R: ...
async def asynchronous(ws: Path, params: P) -> R: ...


def generator(ws: Path, params: P) -> R:
    yield R()


@pytest.mark.parametrize(
    ("body", "problem", "corrected"),
    [
        (extra_parameter, "takes 3 parameter(s)", "(ws: Path, params: P) -> R:"),
        (any_positional, "any number of arguments", "(ws: Path, params: P) -> R:"),
        (any_keyword, "any number of arguments", "(ws: Path, params: P) -> R:"),
        (keyword_only, "'params' is keyword-only", "(ws: Path, params: P) -> R:"),
        (default, "'params' has a default value", "(ws: Path, params: P) -> R:"),
        (text_workspace, "'ws' is a str, and must be Path", "(ws: Path, params: P) -> R:"),
        (swapped, "'ws' is a Path, and must be a class", "(ws: Path, params: P) -> R:"),
        (no_annotation, "'params' has no annotation", "params: NoAnnotationParams) -> R:"),
        (no_workspace_annotation, "'ws' has no annotation", "(ws: Path, params: P) -> R:"),
        (returns_nothing, "return value is a NoneType", "-> ReturnsNothingResult:"),
        (returns_dict, "return value is a dict", "-> ReturnsDictResult:"),
        (base_model, "'params' is a BaseModel", "params: BaseModelParams) -> R:"),
        (optional_params, "must be a class of yours", "params: OptionalParamsParams) -> R:"),
        (asynchronous, "is async", "def asynchronous(ws: Path, params: P) -> R:"),
        (generator, "is a generator", "(ws: Path, params: P) -> R:"),
    ],
)
def test_a_wrong_body_is_refused_and_shown_right(body, problem, corrected):
    with pytest.raises(TaskDefinitionError) as refused:
        task(name="songs.wrong", owner_email="a@example.com", workspace=WorkspaceSpec())(body)
    assert problem in refused.value.message
    assert "test_signature.py:" in refused.value.message
    assert "task 'songs.wrong'" in refused.value.message
    assert refused.value.fix.startswith("write def ")
    assert corrected in refused.value.fix


def test_without_a_workspace_a_body_takes_its_params_alone():
    def body(ws: Path, params: P) -> R: ...

    with pytest.raises(TaskDefinitionError, match="takes 2 parameter") as refused:
        task(name="songs.wrong", owner_email="a@example.com")(body)
    assert refused.value.fix == "write def body(params: P) -> R:"


def test_only_functions_can_be_tasks():
    with pytest.raises(TaskDefinitionError, match="not a function"):
        task(name="songs.wrong", owner_email="a@example.com")(print)


def test_the_line_named_is_that_of_the_def_not_of_its_decorator():
    with pytest.raises(TaskDefinitionError) as refused:

        @task(
            name="songs.wrong",
            owner_email="a@example.com",
        )
        def body() -> R: ...

    line = int(refused.value.message.split(":")[1])
    assert Path(__file__).read_text().splitlines()[line - 1].strip() == "def body() -> R: ..."


def test_a_nested_function_may_use_the_models_around_it():
    class Local(BaseModel):
        pass

    @task(name="songs.local", owner_email="a@example.com")
    def body(params: "Local") -> "Local":
        return params

    assert body.params_model is Local
