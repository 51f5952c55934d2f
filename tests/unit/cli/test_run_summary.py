"""The next step that is proposed after a run that stopped."""

from dataclasses import replace

import pytest

from perago.cli.run import exit_code, next_step
from perago.model.attempt import Attempt, TaskStatus
from perago.model.run import AttemptRecord, RunPlan, RunRecord, RunStatus
from perago.model.workspace import WorkspaceRef

RUN = "0112d1ec-1c2b-4486-87ae-ac1deead5f68"
SHORT = "0112d1ec"
RESUME = f"Continue with: perago run --resume {SHORT}"
LOOK = (
    "Retrying won't help. Look at `perago history --repository songs`, then continue from there: "
)
FIX_INPUT = "Retrying won't help. Fix the input, then run: "
AGAIN = f"perago recover {SHORT}"
FOLLOW = (
    f"The run continues on Conductor. Follow it: `perago run --resume {RUN}`; "
    f"end it: `perago cancel {RUN}`"
)


def ended(
    status=RunStatus.FAILED,
    last=TaskStatus.FAILED,
    reason="task_failed: publish_fence was its last word",
    repository="songs",
    branch="main",
):
    attempt = Attempt(RUN, "count", 1, 0, "task", 0, "songs.count")
    workspace = repository and WorkspaceRef(
        repository=repository, branch=branch, ref_type="commit", ref="a"
    )
    return RunRecord(
        RUN,
        RunPlan("songs", "songs_tasks:songs", ()),
        status,
        created_at=0,
        updated_at=1,
        workspace=workspace,
        attempts=(AttemptRecord(attempt, last, 0, 0, reason=reason),),
    )


TERMINAL = TaskStatus.FAILED_WITH_TERMINAL_ERROR
FENCED = "publish_fence: the branch is elsewhere"


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (ended(RunStatus.COMPLETED, TaskStatus.COMPLETED, None), None),
        (ended(RunStatus.TERMINATED, TaskStatus.CANCELED, None), None),
        (ended(), RESUME),
        (ended(RunStatus.TIMED_OUT, TaskStatus.TIMED_OUT), RESUME),
        (ended(RunStatus.PAUSED, TaskStatus.SCHEDULED, None), RESUME),
        (ended(reason="stale_attempt: it is over"), RESUME),
        (ended(last=TERMINAL), FIX_INPUT + AGAIN),
        (ended(last=TERMINAL, repository=None), FIX_INPUT + AGAIN),
        (ended(RunStatus.RUNNING, TaskStatus.IN_PROGRESS, None), FOLLOW),
        (ended(reason=FENCED), LOOK + AGAIN),
        (ended(reason="wrong_landing: on another's commit"), LOOK + AGAIN),
        (ended(reason="publish_unknown: the answer was lost"), LOOK + AGAIN),
        (ended(reason=FENCED, repository="other"), LOOK.replace("songs", "other") + AGAIN),
        (ended(reason=FENCED, branch="dev"), LOOK.replace("songs", "songs --branch dev") + AGAIN),
    ],
)
def test_the_next_step_fits_how_the_run_ended(record, expected):
    assert next_step(record) == expected


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (ended(), RESUME),
        (
            ended(reason=FENCED),
            LOOK.replace("songs", "songs --on lakefs --home 'my home'") + AGAIN,
        ),
    ],
)
def test_options_that_found_the_run_are_in_the_next_command(record, words):
    place = ("--on", "lakefs", "--home", "my home")
    assert next_step(record, place) == f"{words} --on lakefs --home 'my home'"


def test_a_run_that_ended_before_any_attempt_can_be_resumed():
    record = replace(ended(RunStatus.TIMED_OUT), attempts=(), reason="timed out")
    assert next_step(record) == RESUME
    assert exit_code(record) == 1


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (RunStatus.COMPLETED, 0),
        (RunStatus.FAILED, 1),
        (RunStatus.TERMINATED, 1),
        (RunStatus.PAUSED, 130),
        (RunStatus.RUNNING, 130),
    ],
)
def test_the_exit_code_tells_an_end_from_a_person_who_left(status, code):
    assert exit_code(ended(status)) == code
