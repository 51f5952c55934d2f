"""Leases kept while a body works, and bodies stopped once nobody counts on them any more."""

import os
import signal
import time

import pytest
from support.processes import until
from support.tasks import worker_tasks
from support.worker import attempts_of, reached

from perago.adapters.conductor.http import api_path


def test_a_body_that_is_busy_for_longer_than_its_lease_keeps_it(place):
    place.worker()
    gate = place.fresh
    run_id = place.start(worker_tasks.growing, {"grow": {"gate": str(gate), "busy": True}})
    run = place.when(lambda run: run.attempts[0].started_at, run_id)
    over = run.attempts[0].started_at + 1.5 * worker_tasks.LEASE_SECONDS
    place.when(lambda run: time.time() > over or not run.status.is_active, run_id)
    assert reached(gate)
    gate.touch()
    assert attempts_of(place.completed(run_id)) == [("grow", "COMPLETED")]


def test_a_body_whose_workflow_is_cancelled_is_stopped_and_the_worker_goes_on(place):
    worker, _, run_id = place.held_at_a_gate(worker_tasks.growing_patiently)
    (executor,) = worker.executors
    place.conductor.orchestrator.cancel(run_id, "not wanted any more")
    line = worker.wait_for("attempt.ended", run=run_id)
    assert line["status"] == "LOST"
    assert "CANCELED" in line["reason"]
    assert executor not in worker.executors

    assert len(place.completed(place.start(worker_tasks.counting)).attempts) == 1
    worker.stop()
    assert place.published() == []
    place.assert_nothing_left()


@pytest.mark.slow
def test_a_body_whose_workflow_is_started_over_makes_room_for_the_new_attempt(place):
    worker, gate, run_id = place.held_at_a_gate(worker_tasks.growing_patiently)
    (old,) = place.run(run_id).attempts
    api = place.conductor.api
    api.send("DELETE", api_path("workflow", run_id, reason="start over"), doing="terminating")
    api.send("POST", api_path("workflow", run_id, "restart"), doing="restarting")
    worker.wait_for("attempt.ended", task_id=old.attempt.task_id, status="LOST")
    gate.touch()
    run = place.completed(run_id)
    assert attempts_of(run) == [("grow_patiently", "COMPLETED")]
    assert run.attempts[0].attempt.task_id != old.attempt.task_id
    assert place.published() == ["grow_patiently"]


@pytest.mark.matrix
def test_a_poller_that_is_stuck_is_replaced_and_costs_no_retry(place):
    worker, gate, run_id = place.held_at_a_gate(worker_tasks.growing_patiently)
    stuck = worker.poller
    os.kill(stuck, signal.SIGSTOP)
    until(lambda: worker.poller != stuck, "another poller")
    gate.touch()
    assert attempts_of(place.completed(run_id)) == [("grow_patiently", "COMPLETED")]
    worker.stop()
    place.assert_nothing_left()
