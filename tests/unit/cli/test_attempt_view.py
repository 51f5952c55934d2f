"""Lines about attempts for people who have no terminal: short, plain, with the fix."""

import pytest

from perago.cli.attempt_view import AttemptView
from perago.cli.local_view import LiveTable, RunLines
from perago.cli.output import console
from perago.cli.start import ServiceLines
from perago.errors import OrchestratorUnavailableError
from perago.model.attempt import Attempt, AttemptStep, Execution, TaskStatus
from perago.model.progress import Transfer
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    OrchestratorUnreachable,
    RetryAwaited,
    StepEnded,
    StepProgressed,
    StepStarted,
)

RUN = "0112d1ec-1c2b-4486-87ae-ac1deead5f68"
COMMIT = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
FIRST = Attempt(RUN, "clean", 1, 0, "task-0", 0, "songs.clean")
RETRY = Attempt(RUN, "clean", 2, 0, "task-1", 1, "songs.clean")
PUBLISHED = {"step": "publish", "ref": COMMIT, "level": "cas", "path": "merged", "seconds": 0.1}


@pytest.fixture
def clock(monkeypatch):
    """The time that passes for views: none, unless a test sets it."""
    now = [100.0]
    monkeypatch.setattr("perago.cli.attempt_view.time.monotonic", lambda: now[0])
    monkeypatch.setattr("perago.cli.attempt_view.time.strftime", lambda _format: "12:00:00")
    return now


def complete(lines, clock, attempt):
    lines.observe(AttemptStarted(Execution(attempt, "execution")))
    for step in AttemptStep:
        lines.observe(StepStarted(attempt, step))
    lines.observe(StepEnded(attempt, PUBLISHED))
    clock[0] += 1.5
    lines.observe(AttemptEnded(attempt, Ending.ACCEPTED, TaskStatus.COMPLETED))


def test_an_attempt_that_goes_well_is_two_short_lines(clock, capfd):
    complete(RunLines(["clean", "summarise"]), clock, FIRST)
    assert capfd.readouterr().err.splitlines() == [
        "▸ clean",
        "✓ clean      1.50 s  → 0123456789ab  (merged, cas)",
    ]


def test_a_failure_comes_with_its_fix_and_the_wait_for_the_retry(clock, capfd):
    lines = RunLines(["clean"])
    lines.observe(AttemptStarted(Execution(FIRST, "execution")))
    why = "store_full: no room (fix: free some room (2 GB))"
    lines.observe(AttemptEnded(FIRST, Ending.ACCEPTED, TaskStatus.FAILED, why))
    for seconds in (5.0, 4.0, 0.2):
        lines.observe(RetryAwaited(seconds))
    lines.observe(AttemptStarted(Execution(RETRY, "execution")))
    assert capfd.readouterr().err.splitlines() == [
        "▸ clean",
        "✗ clean  0.00 s  FAILED: store_full: no room",
        "    fix: free some room (2 GB)",
        "  clean: trying again in 5 s",
        "▸ clean, retry 1",
    ]


def test_only_a_step_that_takes_long_gets_a_line(clock, capfd):
    lines = RunLines(["clean"])
    lines.observe(AttemptStarted(Execution(FIRST, "execution")))
    lines.observe(StepEnded(FIRST, {"step": "fetch", "seconds": 4.9}))
    lines.observe(StepEnded(FIRST, {"step": "body", "seconds": 75}))
    assert capfd.readouterr().err.splitlines()[1:] == ["  clean: running took 75 s"]


def test_a_long_transfer_shows_its_progress_now_and_then(clock, capfd):
    lines = RunLines(["clean"])
    lines.observe(AttemptStarted(Execution(FIRST, "execution")))
    lines.observe(StepStarted(FIRST, AttemptStep.STAGE_UPLOAD))
    for moved in range(1, 25):
        clock[0] += 1
        lines.observe(
            StepProgressed(FIRST, AttemptStep.STAGE_UPLOAD, Transfer(moved, moved, 100, 100))
        )
    assert capfd.readouterr().err.splitlines()[1:] == [
        "  clean: uploading changes, 11/100 objects",
        "  clean: uploading changes, 22/100 objects",
    ]


def test_a_worker_uses_the_same_words_with_the_time_and_the_run(clock, capfd):
    lines = ServiceLines()
    complete(lines, clock, RETRY)
    lines.observe(OrchestratorUnreachable(OrchestratorUnavailableError("no answer", fix="start")))
    assert capfd.readouterr().err.splitlines() == [
        "12:00:00  ▸ songs.clean (0112d1ec, retry 1)",
        "12:00:00  ✓ songs.clean (0112d1ec, retry 1)  1.50 s  → 0123456789ab  (merged, cas)",
        "12:00:00  Conductor is unreachable or rejects our key; retrying: no answer",
        "12:00:00      fix: start",
    ]


def test_the_live_table_uses_them_too(clock):
    table = LiveTable(["clean"], console(stderr=True))
    complete(table, clock, FIRST)
    screen = console()
    with screen.capture() as shown:
        screen.print(table)
    assert " ".join(shown.get().split()) == "✓ clean 1.5 s → 0123456789ab"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("FAILED_WITH_TERMINAL_ERROR", "✗ clean  FAILED, no retry: bad input"),
        ("LOST", "✗ clean  LOST: bad input"),
        ("stopped (the worker stops)", "✗ clean  stopped (the worker stops): bad input"),
    ],
)
def test_an_end_that_is_no_success_says_which(status, words):
    view = AttemptView("clean", status=status, reason="bad input")
    assert list(view.lines()) == [words]
