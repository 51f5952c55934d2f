"""`kill -9` of a worker's processes, wherever an attempt is: the workflow ends as if none had died.

`make test` has a part of it, `make test-slow` the rest, `make matrix` all.
"""

import os
import signal

import pytest
from support.processes import state_of, until
from support.tasks import worker_tasks
from support.worker import completed_steps

from perago.ports.environment import FAILPOINTS

GROWN_AND_PRUNED = {
    "a.txt": b"a grew\n" * 3,
    "folder/c.txt": b"folder/c.txt as it was\n",
    "folder/new.txt": b"new\n",
    "folder/count.txt": b"21\n",
}
TELLING = ("body.done", "publish.sent", "report.sent")
"""Where an executor's death is tried every time: before, in and after a publication."""

SENT = ("publish.sent",)
"""Where the death of the other two is tried every time."""

SETTLED = ("report.sent", "directory.removed")
"""Where the attempt's own report was accepted before its process died."""


def each_failpoint(*, always):
    return pytest.mark.parametrize(
        "failpoint",
        [
            pytest.param(name, marks=() if name in always else pytest.mark.matrix)
            for name in FAILPOINTS
        ],
    )


def assert_ended_as_if_nobody_had_died(place, run):
    assert completed_steps(run) == ["grow", "look", "count", "prune"]
    assert place.published() == ["grow", "prune"]
    assert place.tree() == GROWN_AND_PRUNED
    assert run.output_ref == place.history()[-1].id
    place.workers[-1].stop()
    place.assert_nothing_left()


@each_failpoint(always=TELLING)
def test_an_executor_killed(failpoint, place):
    counter = place.fresh
    worker = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=kill-once:{counter}")
    run = place.completed(place.start(worker_tasks.chain))

    assert len(counter.read_bytes()) > 1, "it was there again after it had died"
    first, *others = run.attempts
    if failpoint in SETTLED:
        assert first.status == "COMPLETED"
    else:
        assert first.status == "FAILED"
        assert "was ended by SIGKILL" in first.reason
    assert all(attempt.status == "COMPLETED" for attempt in others)
    assert_ended_as_if_nobody_had_died(place, run)
    assert worker.heard("attempt.ended", status=first.status)


@each_failpoint(always=SENT)
def test_the_poller_killed(failpoint, place):
    worker = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=stop-once:{place.fresh}")
    run_id = place.start(worker_tasks.chain)
    executor = worker.stopped_executor()
    poller = worker.poller
    os.kill(poller, signal.SIGKILL)
    until(lambda: worker.poller != poller, "another poller")
    worker.resume(executor)

    run = place.completed(run_id)
    assert [attempt.status for attempt in run.attempts] == ["COMPLETED"] * 4, "no retry was needed"
    assert_ended_as_if_nobody_had_died(place, run)


@each_failpoint(always=SENT)
def test_the_supervisor_killed(failpoint, place):
    first = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=stop-once:{place.fresh}")
    run_id = place.start(worker_tasks.chain)
    executor, poller = first.stopped_executor(), first.poller
    first.kill()
    place.worker()
    until(lambda: state_of(poller) is None, "the poller to end itself")
    first.resume(executor)
    until(lambda: state_of(executor) is None, "the executor to end itself")

    run = place.completed(run_id)
    lost = [a for a in run.attempts if a.status != "COMPLETED"]
    assert len(lost) == (0 if failpoint in SETTLED else 1)
    assert all(attempt.status == "TIMED_OUT" for attempt in lost)
    assert_ended_as_if_nobody_had_died(place, run)
