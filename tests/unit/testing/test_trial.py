"""``run_task`` treats a task as the runtime does, and its caller's slips as what they are."""

import os
import tracemalloc
from datetime import date
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, computed_field

from perago import WorkspaceSpec, task
from perago.errors import RuntimeConfigError, UnsupportedFileError
from perago.testing import run_task

MEBIBYTE = 2**20


class Window(BaseModel):
    since: date = Field(alias="from")
    days: int = 1

    @computed_field
    @property
    def hours(self) -> int:
        return self.days * 24


class Seen(BaseModel):
    paths: list[str] = []
    since: str = ""


class Nothing(BaseModel):
    pass


class Report(BaseModel):
    """Strict, with names of its own on the wire, and a field it never reads."""

    model_config = ConfigDict(strict=True, extra="forbid")

    day: date = Field(serialization_alias="Day")

    @computed_field
    @property
    def year(self) -> int:
        return self.day.year


@task(name="trial.report", owner_email="a@b.c")
def report(params: Nothing) -> Report:
    return Report(day=date(2026, 1, 1))


@task(name="trial.window", owner_email="a@b.c")
def window(params: Window) -> Seen:
    return Seen(since=params.since.isoformat())


@task(name="trial.strict", owner_email="a@b.c", strict_params=True)
def strict_window(params: Window) -> Seen:
    return Seen(since=params.since.isoformat())


@task(name="trial.look", owner_email="a@b.c", workspace=WorkspaceSpec(prefix="songs"))
def look(ws: Path, params: Nothing) -> Seen:
    return Seen(paths=sorted(str(p.relative_to(ws)) for p in ws.rglob("*") if p.is_file()))


@task(name="trial.drop", owner_email="a@b.c", workspace=WorkspaceSpec())
def drop_everything(ws: Path, params: Nothing) -> Nothing:
    for path in ws.iterdir():
        path.unlink()
    return params


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"from": "2026-01-01", "days": "many"}, "days"),
        ({"days": 2}, "from"),
        (None, "from"),
        ({"from": object()}, "aren't JSON"),
        (["2026-01-01"], "bad params"),
    ],
    ids=["wrong value", "missing field", "no params", "not JSON", "no object"],
)
def test_params_the_task_does_not_take_fail_the_attempt_with_its_own_input_error(params, told):
    trial = run_task(window, params)
    assert trial.status == "FAILED"
    assert trial.reason.startswith("task_input: ")
    assert told in trial.reason
    assert "--param" not in trial.reason
    assert trial.result is None


def test_unknown_params_are_ignored_unless_the_task_is_strict():
    given = {"from": "2026-01-01", "colour": "blue"}
    assert run_task(window, given).completed
    refused = run_task(strict_window, given)
    assert refused.status == "FAILED"
    assert "colour" in refused.reason


@pytest.mark.parametrize("checked", [window, strict_window], ids=["loose", "strict"])
@pytest.mark.parametrize(
    "params",
    [
        Window(**{"from": date(2026, 1, 1)}),
        {"from": date(2026, 1, 1)},
        {"from": "2026-01-01"},
    ],
    ids=["model", "Python values", "JSON values"],
)
def test_params_reach_the_task_by_their_wire_names_however_they_are_given(checked, params):
    trial = run_task(checked, params)
    assert trial.completed, trial.reason
    assert trial.result.since == "2026-01-01"


def test_the_result_is_the_model_the_task_returned():
    trial = run_task(report)
    assert trial.result == Report(day=date(2026, 1, 1))


def test_a_directory_is_put_below_the_tasks_prefix(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a").write_text("1")
    (tmp_path / "b").touch()
    trial = run_task(look, directory=tmp_path)
    assert trial.result.paths == ["b", "deep/a"]
    assert trial.files == {"b": b"", "deep/a": b"1"}
    assert trial.changes == {"added": [], "changed": [], "removed": []}


def test_an_empty_directory_is_an_empty_workspace(tmp_path):
    trial = run_task(look, directory=tmp_path)
    assert trial.result.paths == []


def test_a_directory_that_is_not_there_is_named(tmp_path):
    with pytest.raises(RuntimeConfigError, match="nowhere' doesn't exist") as refused:
        run_task(look, directory=tmp_path / "nowhere")
    assert "directory=" in refused.value.fix


def test_a_file_is_no_directory(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuntimeConfigError, match="file' is not a directory") as refused:
        run_task(look, directory=tmp_path / "file")
    assert "directory=" in refused.value.fix


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda path: path.symlink_to("real"), "a symlink"),
        (lambda path: path.symlink_to("/etc", target_is_directory=True), "a symlink"),
        (os.mkfifo, "a pipe"),
    ],
    ids=["symlink", "symlink to a directory", "pipe"],
)
def test_what_a_run_would_refuse_to_import_is_refused_by_name(tmp_path, make, kind):
    (tmp_path / "real").write_text("x")
    make(tmp_path / "odd")
    with pytest.raises(UnsupportedFileError, match=f"'odd': it is {kind}"):
        run_task(look, directory=tmp_path)


def test_a_big_directory_is_never_held_in_memory(tmp_path):
    with (tmp_path / "big").open("wb") as file:
        file.truncate(64 * MEBIBYTE)
    tracemalloc.start()
    try:
        trial = run_task(drop_everything, directory=tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert trial.changes["removed"] == ["big"]
    assert peak < 32 * MEBIBYTE


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (lambda params: params, "decorate it with @task"),
        (None, "decorate it with @task"),
        (look.with_params(), "run_task(look, …)"),
    ],
    ids=["a plain function", "nothing", "a step"],
)
def test_only_a_task_can_be_tried(given, fix):
    with pytest.raises(RuntimeConfigError, match="is not a task") as refused:
        run_task(given)
    assert fix in refused.value.fix


def test_files_and_a_directory_are_one_too_many(tmp_path):
    with pytest.raises(RuntimeConfigError, match="not both") as refused:
        run_task(look, files={}, directory=tmp_path)
    assert refused.value.fix


def test_a_task_without_a_workspace_takes_no_files():
    with pytest.raises(RuntimeConfigError, match=r"trial\.window has no workspace"):
        run_task(window, {"from": "2026-01-01"}, files={"a": "1"})
