"""A read-only task may leave anything behind: nothing of it will be stored."""

from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, require_file, task
from perago.testing import run_task


class Nothing(BaseModel):
    pass


def leave_a_link(ws: Path, params: Nothing) -> Nothing:
    (ws / "link").symlink_to("a.txt")
    return params


def test_a_link_left_by_a_read_only_task_is_discarded_with_a_warning():
    looking = task(
        name="reading.link", owner_email="a@b.c", workspace=WorkspaceSpec(read_only=True)
    )(leave_a_link)
    trial = run_task(looking, files={"a.txt": "1"})
    assert trial.completed
    (warning,) = [event for event in trial.log if event["step"] == "read_only.discarded"]
    assert "'link'" in str(warning["warning"])
    assert trial.files == {"a.txt": b"1"}


def test_a_check_that_would_have_to_see_the_link_fails():
    checked = task(
        name="reading.checked",
        owner_email="a@b.c",
        workspace=WorkspaceSpec(read_only=True, post=[require_file("a.txt")]),
    )(leave_a_link)
    trial = run_task(checked, files={"a.txt": "1"})
    assert trial.status == "FAILED"
    assert "symlink" in str(trial.reason)
