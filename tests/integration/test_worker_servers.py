"""A worker whose lakeFS is killed, or whose Conductor is slow or out of its mind for a while."""

import threading
from contextlib import closing

import pytest
from support import slow_except
from support.processes import until
from support.tasks import worker_tasks
from support.wire import FaultyWire, answer, answer_after_applying, delay, drop_answer, drop_request
from support.worker import HeldExchange, WorkerRig, attempts_of

COMPLETED = [("grow_patiently", "COMPLETED")]
RETRIED = [("grow_patiently", "FAILED"), ("grow_patiently", "COMPLETED")]
AN_UPDATE = {"method": "POST", "path": r"/api/tasks$"}
"""A report or a heartbeat; of those there is one in half a minute in the patient task."""


@pytest.fixture
def on_mortal_lakefs(conductor_server, mortal_server, tmp_path):
    with closing(WorkerRig(tmp_path, conductor_server, mortal_server)) as opened:
        yield opened


@pytest.fixture
def wire_to_conductor(conductor_server):
    with FaultyWire(conductor_server.removesuffix("/api")) as wire:
        yield wire


def stopped_at(place, failpoint):
    """A worker whose executor is stopped there, that executor, and the run's id."""
    worker = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=stop-once:{place.fresh}")
    run_id = place.start(worker_tasks.growing_patiently)
    return worker, worker.stopped_executor(), run_id


def assert_ended_well(place, worker, run_id, attempts=COMPLETED):
    run = place.completed(run_id)
    assert attempts_of(run) == attempts, place.story(run)
    assert place.published() == ["grow_patiently"]
    assert place.history()[-1].id == run.output_ref
    worker.stop()
    place.assert_nothing_left()


# --- Conductor ------------------------------------------------------------------------------------


def test_conductor_that_answers_5xx_now_and_then_is_asked_again(place, wire_to_conductor):
    wire = wire_to_conductor
    wire.on(answer(503), path="/tasks/poll/", times=3)
    wire.on(answer(502), path=r"/workflow/[^/]+/tasks", times=2)
    for fault in (answer(500), answer_after_applying(503), drop_answer, drop_request):
        wire.on(fault, **AN_UPDATE)
    worker = place.worker(CONDUCTOR_SERVER_URL=f"{wire.endpoint}/api")
    run_id = place.start(worker_tasks.growing_patiently)
    assert_ended_well(place, worker, run_id)
    assert not wire.unfired
    codes = {line["code"] for line in worker.heard("orchestrator.unheard")}
    assert codes == {"orchestrator_unavailable"}


def test_conductor_that_answers_slowly_is_waited_for(place, wire_to_conductor):
    wire_to_conductor.on(delay(1.0, "after"), times=None)
    worker = place.worker(CONDUCTOR_SERVER_URL=f"{wire_to_conductor.endpoint}/api")
    run_id = place.start(worker_tasks.growing_patiently)
    assert_ended_well(place, worker, run_id)


def test_a_report_waits_for_a_heartbeat_that_is_under_way(place, wire_to_conductor):
    """Conductor answers a heartbeat by writing the task back as it was: it could undo a report."""
    heartbeat, reported = HeldExchange(), threading.Event()

    def report(exchange):
        reported.set()
        exchange.reply(exchange.forward())

    wire_to_conductor.on(heartbeat, **AN_UPDATE)
    wire_to_conductor.on(report, **AN_UPDATE)
    worker, gate, run_id = place.held_at_a_gate(
        worker_tasks.growing_impatiently, CONDUCTOR_SERVER_URL=f"{wire_to_conductor.endpoint}/api"
    )
    until(lambda: heartbeat.is_held, lambda: f"a heartbeat\n{worker}")
    gate.touch()
    until(place.published, lambda: f"a publication\n{worker}")
    assert not reported.wait(1.0)  # far from when the heartbeat is given up
    heartbeat.release()
    run = place.completed(run_id)
    assert attempts_of(run) == [("grow_impatiently", "COMPLETED")]


# --- lakeFS ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failpoint", "attempts"),
    slow_except(
        ("fence1.passed", RETRIED),
        of=[("fence1.passed", RETRIED), ("publish.cleared", RETRIED), ("report.ready", COMPLETED)],
    ),
)
def test_lakefs_killed_before_staging_before_the_merge_and_before_the_report(
    failpoint, attempts, on_mortal_lakefs, mortal_server
):
    worker, executor, run_id = stopped_at(on_mortal_lakefs, failpoint)
    mortal_server.kill()
    worker.resume(executor)
    if attempts is RETRIED:
        on_mortal_lakefs.when(lambda run: run.attempts[0].status != "IN_PROGRESS", run_id)
    mortal_server.restart()
    assert_ended_well(on_mortal_lakefs, worker, run_id, attempts)


@pytest.mark.parametrize(
    "was_applied",
    [pytest.param(True, id="applied", marks=pytest.mark.slow), pytest.param(False, id="lost")],
)
def test_lakefs_killed_in_the_merge(was_applied, on_mortal_lakefs, mortal_server):
    place = on_mortal_lakefs

    def kill(exchange):
        if was_applied:
            exchange.forward().keep()
        mortal_server.kill()
        exchange.cut()

    with FaultyWire(mortal_server.endpoint) as wire:
        wire.on(kill, method="POST", path="/merge/main$")
        worker = place.worker(LAKECTL_SERVER_ENDPOINT_URL=wire.endpoint)
        run_id = place.start(worker_tasks.growing_patiently)
        run = place.when(lambda run: run.attempts[0].status == "FAILED", run_id)
        assert "publish_unknown" in run.attempts[0].reason
        mortal_server.restart()
        assert_ended_well(place, worker, run_id, RETRIED)


def test_lakefs_away_when_an_attempt_begins_is_waited_for(on_mortal_lakefs, mortal_server):
    worker, executor, run_id = stopped_at(on_mortal_lakefs, "input.validated")
    mortal_server.kill()
    worker.resume(executor)
    waiting = worker.wait_for("warning")["warning"]
    assert "waiting for the store to come back" in waiting
    mortal_server.restart()
    assert_ended_well(on_mortal_lakefs, worker, run_id)


def test_lakefs_killed_in_the_report(on_mortal_lakefs, mortal_server, wire_to_conductor):
    def kill(exchange):
        mortal_server.kill()
        exchange.reply(exchange.forward())

    wire_to_conductor.on(kill, **AN_UPDATE)
    worker = on_mortal_lakefs.worker(CONDUCTOR_SERVER_URL=f"{wire_to_conductor.endpoint}/api")
    run_id = on_mortal_lakefs.start(worker_tasks.growing_patiently)
    on_mortal_lakefs.completed(run_id)
    mortal_server.restart()
    assert_ended_well(on_mortal_lakefs, worker, run_id)


@pytest.mark.slow
def test_a_staging_branch_that_lakefs_was_away_for_is_cleared_by_the_worker_itself(
    on_mortal_lakefs, mortal_server
):
    place = on_mortal_lakefs
    worker, executor, run_id = stopped_at(place, "publish.done")
    mortal_server.kill()
    worker.resume(executor)
    run = place.completed(run_id)
    mortal_server.restart()
    assert attempts_of(run) == COMPLETED
    until(lambda: not place.staging_branches() and not place.attempts_of(), "it to be cleared")
    worker.stop()
    place.assert_nothing_left()
