"""A run on Conductor in front of a person: what is seen at each moment, and what is said beside."""

import io
import json

import pytest
from rich.console import Console
from rich.live import Live

from perago.cli.conductor_view import FollowedTable, followed_view, rows_of
from perago.cli.output import Output
from perago.model.attempt import Attempt, TaskStatus
from perago.model.controls import TaskControls
from perago.model.run import AttemptRecord, RunPlan, RunRecord, RunStatus, StepPlan
from perago.operations.run_follow import RunSnapshot

NOW = 1_800_000_000.0
RUN = "0112d1ec-1c2b-4486-87ae-ac1deead5f68"


def attempt(reference, retry, status, *, due=NOW - 60, **known):
    identity = Attempt(RUN, reference, retry + 1, 0, f"{reference}-{retry}", retry, "songs.clean")
    return AttemptRecord(identity, status, NOW - 60, due, **known)


def run(*attempts, status=RunStatus.RUNNING, target="package.songs:songs"):
    steps = tuple(
        StepPlan(name, "songs.clean", "", uses_workspace=True, params={}, controls=TaskControls())
        for name in ("clean", "rank")
    )
    return RunRecord(
        RUN, RunPlan("songs", target, steps), status, NOW - 60, NOW, None, None, attempts
    )


FAILED = attempt(
    "clean",
    0,
    TaskStatus.FAILED,
    started_at=NOW - 9,
    ended_at=NOW - 3,
    worker_id="worker-1",
    reason="executor_lost: it was killed",
)
COMPLETED = attempt(
    "clean",
    0,
    TaskStatus.COMPLETED,
    started_at=NOW - 9,
    ended_at=NOW - 3,
    worker_id="worker-1",
    output={"workspace": {"ref": "0123456789abcdef"}},
)
WAITING = attempt("clean", 1, TaskStatus.SCHEDULED, due=NOW + 12)
DUE = attempt("clean", 1, TaskStatus.SCHEDULED, due=NOW - 1)
RUNNING = attempt("clean", 1, TaskStatus.IN_PROGRESS, started_at=NOW - 2, worker_id="worker-2")


def screen():
    return Console(file=io.StringIO(), width=100, highlight=False, color_system=None)


def shown(record):
    console = screen()
    console.print(rows_of(record, NOW))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]


def test_a_step_that_hasnt_begun_has_its_place():
    assert shown(run()) == ["· clean", "· rank"]


@pytest.mark.parametrize(
    ("record", "row"),
    [
        (WAITING, "· clean retry 1 trying again in 12 s"),
        (DUE, "· clean retry 1 waiting for a worker"),
        (RUNNING, "▸ clean retry 1 2.0 s running on worker-2"),
        (COMPLETED, "✓ clean 6.0 s → 0123456789ab on worker-1"),
        (FAILED, "✗ clean 6.0 s FAILED: executor_lost: it was killed on worker-1"),
        (attempt("clean", 0, TaskStatus.CANCELED), "✗ clean CANCELED"),
    ],
)
def test_each_attempt_says_what_it_does_and_where(record, row):
    assert shown(run(record)) == [row, "· rank"]


def test_a_retry_stands_below_what_it_retries():
    rows = shown(run(FAILED, RUNNING))
    assert [row.split()[:2] for row in rows] == [["✗", "clean"], ["▸", "clean"], ["·", "rank"]]


def test_a_server_whose_clock_is_ahead_makes_nothing_take_less_than_no_time():
    early = attempt("clean", 0, TaskStatus.IN_PROGRESS, started_at=NOW + 5, worker_id="w")
    assert shown(run(early))[0] == "▸ clean 0.0 s running on w"


def test_a_task_that_went_to_several_workers_says_so():
    twice = attempt("clean", 0, TaskStatus.IN_PROGRESS, started_at=NOW, worker_id="w", poll_count=2)
    assert shown(run(twice))[0].endswith("running on w, delivered 2 times")


def test_a_task_that_isnt_in_the_plan_is_shown_too():
    assert shown(run(attempt("fork", 0, TaskStatus.COMPLETED)))[-1].startswith("✓ fork")


# --- beside it ------------------------------------------------------------------------------------


@pytest.fixture
def lines(capfd, monkeypatch):
    monkeypatch.setattr("perago.cli.conductor_view.backend_options", lambda: ("--on", "conductor"))

    monkeypatch.setattr("perago.cli.conductor_view.time.time", lambda: NOW)

    def after(*sights, json_lines=False):
        with followed_view(run(), Output(as_json=False, json_lines=json_lines)) as view:
            for snapshot in sights:
                view.show(snapshot)
        return capfd.readouterr().err.splitlines()

    return after


def test_that_no_worker_is_there_is_said_once_with_the_command_that_starts_one(lines):
    lonely = RunSnapshot(run(DUE), unpolled=("songs.clean",))
    (line,) = [line for line in lines(lonely, lonely) if "warning" in line]
    assert "`perago start package.songs --on conductor`" in line
    foreign = RunSnapshot(run(DUE, target=""), unpolled=("other",))
    assert "`perago start MODULE --on conductor`" in lines(foreign)[-1]


def test_that_a_worker_came_is_said_but_not_of_a_run_that_was_cancelled(lines):
    lonely, well = RunSnapshot(run(DUE), unpolled=("songs.clean",)), RunSnapshot(run(RUNNING))
    assert "warning: songs.clean has a worker now" in lines(lonely, well)
    ended = RunSnapshot(run(status=RunStatus.TERMINATED))
    assert len(lines(lonely, ended)) == 1


def test_that_it_comes_and_goes_is_said_each_time(lines):
    well, away = (
        RunSnapshot(run(RUNNING)),
        RunSnapshot(run(RUNNING), problem="nobody answers at http://x"),
    )
    said = [line for line in lines(well, away, away, well, away) if "warn" in line]
    assert [line.partition(";")[0] for line in said] == [
        "warning: nobody answers at http://x",
        "warning: Conductor answers again",
        "warning: nobody answers at http://x",
    ]


def test_a_run_that_somebody_paused_is_told_how_to_go_on(lines):
    paused = RunSnapshot(run(RUNNING, status=RunStatus.PAUSED))
    assert any("`perago run --resume 0112d1ec --on conductor`" in line for line in lines(paused))


def test_programs_get_a_line_for_each_turn_of_an_attempt(lines):
    sights = RunSnapshot(run(FAILED)), RunSnapshot(run(FAILED, WAITING))
    told = [json.loads(line) for line in lines(*sights, json_lines=True)]
    assert [(one["step"], one["retry"], one["status"]) for one in told] == [
        ("attempt.ended", 0, "FAILED"),
        ("attempt.scheduled", 1, "SCHEDULED"),
    ]
    assert told[0]["worker"] == "worker-1"
    assert told[1]["due_at"].startswith("2027-01-15T08:00:12")
    (ended,) = lines(RunSnapshot(run(COMPLETED)), json_lines=True)
    assert json.loads(ended)["output_ref"] == "0123456789abcdef"


def test_in_a_file_people_read_what_started_and_how_it_ended(lines):
    seen = [run(FAILED, WAITING), run(FAILED, DUE), run(FAILED, RUNNING), run(FAILED, RUNNING)]
    assert lines(*map(RunSnapshot, seen)) == [
        "✗ clean  6.00 s  FAILED: executor_lost: it was killed  on worker-1",
        "  clean: trying again in 12 s",
        "▸ clean, retry 1  running on worker-2",
    ]


def test_on_a_terminal_remarks_stay_above_the_table(monkeypatch):
    monkeypatch.setattr("perago.cli.conductor_view.backend_options", lambda: ())
    terminal = Console(file=io.StringIO(), force_terminal=True, width=100, highlight=False)
    table = FollowedTable(run(DUE), terminal)
    with Live(table, console=terminal, transient=True, auto_refresh=False) as live:
        table.show(RunSnapshot(run(DUE), problem="nobody answers", unpolled=("songs.clean",)))
        live.refresh()
    said = terminal.file.getvalue()
    assert said.count("perago start package.songs") == 1
    assert "Conductor doesn't answer" in said
