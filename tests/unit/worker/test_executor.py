"""How an executor receives the supervisor's messages while its main thread runs attempts."""

import threading
import time
from multiprocessing import Pipe
from pathlib import Path

import pytest

from perago.model.attempt import Attempt, Delivery, Execution, TaskStatus
from perago.model.outcome import AttemptOutcome, TaskReport
from perago.worker import executor as module
from perago.worker.executor import Executor
from perago.worker.messages import (
    Assignment,
    Finished,
    HeartbeatsStopped,
    LeaseRenewed,
    Ready,
    ReportPending,
    SharedStep,
)

PATIENCE_SECONDS = 10.0

_LINES = []
"""Kept open for good: without a supervisor an executor ends its process, here the tests' own."""


class Journal:
    def lasts(self):
        """Takes longer than what is left of the attempt."""
        time.sleep(0.003)


class Scripted(Executor):
    """Its attempts do what the test says, with the lease they have."""

    def __init__(self, connection, body):
        super().__init__(connection, SharedStep.new(), runtime=None, spool=None)
        self._body = body

    def _run(self, assignment):
        self._listener.attempt_began(Journal())
        self._body(self._lease, assignment)
        self._listener.attempt_ended()
        report = TaskReport(TaskStatus.COMPLETED)
        return AttemptOutcome(assignment.execution.id, report, accepted=True)


@pytest.fixture
def serving(monkeypatch):
    """The supervisor's end of the line to an executor with this body."""
    monkeypatch.setattr(module, "LASTING_SECONDS", 0.001)

    def serve(body):
        ours, theirs = Pipe()
        _LINES.append(ours)
        executor = Scripted(theirs, body)
        threading.Thread(target=executor.serve, args=((),), daemon=True).start()
        assert ours.recv() == [Ready()]
        return ours

    return serve


def assignment(number, *, heartbeat_seconds=60.0):
    attempt = Attempt("run", "step", 1, 0, str(number), 0, "task")
    delivery = Delivery(attempt, {}, "worker", 60.0)
    nowhere = Path()
    return Assignment(
        delivery,
        Execution.begin(attempt),
        "module",
        time.monotonic(),
        heartbeat_seconds,
        nowhere,
        nowhere,
    )


def heard(line):
    assert line.poll(PATIENCE_SECONDS), "nothing more was said"
    return line.recv()


def test_no_assignment_is_lost_that_comes_the_moment_an_attempt_that_lasts_is_over(serving):
    line = serving(lambda _lease, _given: time.sleep(0.004))
    for number in range(100):
        line.send(assignment(number))
        assert heard(line) == [Finished(TaskStatus.COMPLETED, None, accepted=True)]


def test_the_lease_of_an_attempt_that_lasts_is_renewed(serving):
    def wait_for_renewal(lease, _given):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while lease.remaining() < 1000 and time.monotonic() < deadline:
            time.sleep(0.001)
        assert lease.remaining() > 1000

    line = serving(wait_for_renewal)
    line.send(assignment(1))
    line.send(LeaseRenewed("1#1", time.monotonic() + 2000))
    assert isinstance(heard(line)[-1], Finished)


def test_an_attempt_that_may_meet_a_heartbeat_waits_until_there_is_none(serving):
    line = serving(lambda lease, _given: lease.stop_heartbeats())
    line.send(assignment(1, heartbeat_seconds=1.0))
    assert heard(line) == [ReportPending()]
    line.send(HeartbeatsStopped("1#1"))
    assert isinstance(heard(line)[-1], Finished)
