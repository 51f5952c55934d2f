"""A run that others work on is followed to its end, whatever happens meanwhile."""

from collections import deque

import pytest
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, task
from perago.adapters.embedded.queue import EmbeddedQueue
from perago.errors import OrchestratorUnavailableError, RunNotFoundError
from perago.model.attempt import TaskStatus
from perago.model.outcome import TaskReport
from perago.operations.run_follow import AttemptChange, attempt_changes, follow
from perago.testing import ManualClock
from perago.testing.bench import Bench


class Nothing(BaseModel):
    pass


CONTROLS = TaskControls(retry=RetryPolicy(count=1, delay_seconds=30))


@task(name="first", owner_email="d@example.com", controls=CONTROLS)
def first(params: Nothing) -> Nothing:
    return params


@task(name="second", owner_email="d@example.com", controls=CONTROLS)
def second(params: Nothing) -> Nothing:
    return params


class Elsewhere(EmbeddedQueue):
    """A queue whose workers are on other machines, and that may be out of reach itself."""

    away = False
    polls: dict[str, tuple[str, float]]

    def get(self, run_id):
        if self.away:
            raise OrchestratorUnavailableError("nobody answers at http://conductor.example")
        return super().get(run_id)

    def look_again(self, run_id):
        self.looked_at = [*getattr(self, "looked_at", []), run_id]

    def last_polls(self, task_names):
        return {name: self.polls[name] for name in task_names if name in self.polls}


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def runs(tmp_path, clock):
    opened = Elsewhere(tmp_path / "queue.db", clock=clock, durable=False)
    opened.polls = {name: ("worker-1", clock.now()) for name in ("first", "second")}
    yield opened
    opened.close()


@pytest.fixture
def run(runs, tmp_path):
    bench = Bench(tmp_path / "bench")
    try:
        return runs.start(bench.plan(first, second), None)
    finally:
        bench.close()


@pytest.fixture
def seen_while(runs, run, clock):
    """All that is seen of the run while these things happen, one between every two looks."""

    def follow_it(*happenings):
        left = deque(happenings)

        def pause(_seconds):
            left.popleft()()

        return list(follow(runs, runs.get(run), now=clock.now, pause=pause))

    return follow_it


@pytest.fixture
def work(runs):
    """Have a worker take what is due, and report on it."""

    def take(report):
        def happening():
            for delivery in runs.poll(["first", "second"], worker_id="worker-1"):
                runs.report(delivery, report)

        return happening

    return take


DONE = TaskReport(TaskStatus.COMPLETED, {"result": {}})


def test_a_run_is_seen_until_it_has_ended(seen_while, work):
    seen = seen_while(work(DONE), work(DONE))
    assert [snapshot.record.status for snapshot in seen] == ["RUNNING", "RUNNING", "COMPLETED"]
    assert [len(snapshot.record.attempts) for snapshot in seen] == [1, 2, 2]


def test_a_run_that_has_ended_is_seen_once(seen_while, runs, run):
    runs.cancel(run, "enough")
    (seen,) = seen_while()
    assert seen.record.status == "TERMINATED"


def test_an_orchestrator_that_is_away_is_waited_for(seen_while, work, runs):
    def leave():
        runs.away = True

    def come_back():
        runs.away = False

    seen = seen_while(work(DONE), leave, leave, come_back, work(DONE))
    assert [bool(snapshot.problem) for snapshot in seen] == [False, False, True, True, False, False]
    assert [len(snapshot.record.attempts) for snapshot in seen] == [1, 2, 2, 2, 2, 2]
    assert "http://conductor.example" in seen[2].problem


def test_a_run_that_is_removed_isnt_waited_for(runs, run):
    record = runs.get(run)
    runs.get = lambda run_id: (_ for _ in ()).throw(RunNotFoundError(f"no run {run_id}"))
    with pytest.raises(RunNotFoundError):
        next(follow(runs, record))


def test_a_task_that_is_due_and_that_nobody_asks_for_is_named(seen_while, work, runs, clock):
    def wait():
        clock.advance(61)

    def poll():
        runs.polls["second"] = ("worker-2", clock.now())
        clock.advance(6)  # it isn't asked at every look

    def work_again():
        clock.advance(6)
        work(DONE)()

    seen = seen_while(work(DONE), wait, poll, work_again)
    assert [snapshot.unpolled for snapshot in seen] == [(), (), ("second",), (), ()]


@pytest.mark.parametrize("name", ["first", "second"])
def test_a_task_nobody_ever_asked_for_is_named_at_the_start(seen_while, work, runs, name):
    del runs.polls[name]
    seen = seen_while(work(DONE), work(DONE))
    assert seen[0].unpolled == (name,)


def test_a_later_task_may_wait_for_a_worker_that_is_busy(seen_while, runs, run, clock):
    def take():
        runs.poll(["first"], worker_id="worker-1")
        clock.advance(61)

    seen = seen_while(take, lambda: runs.cancel(run, "enough"))
    assert [snapshot.unpolled for snapshot in seen] == [(), (), ()]


def test_a_retry_that_isnt_due_yet_needs_no_worker(seen_while, work, runs, run, clock):
    runs.polls = {}
    error = TaskReport(TaskStatus.FAILED, reason="task_failed: once")

    def next_look():
        clock.advance(6)

    seen = seen_while(work(error), next_look, lambda: runs.cancel(run, "enough"))
    assert [snapshot.unpolled for snapshot in seen[2:]] == [(), ()]


@pytest.fixture
def told(runs, run):
    """What is told of the run since the last time."""
    last = None

    def tell():
        nonlocal last
        before, last = last, runs.get(run)
        return [
            (change, a.attempt.reference_task_name, a.attempt.retry_count)
            for change, a in attempt_changes(before, last)
        ]

    return tell


def test_each_turn_of_an_attempt_is_told_once(told, runs, clock):
    assert told() == [(AttemptChange.SCHEDULED, "first", 0)]
    (delivery,) = runs.poll(["first"], worker_id="worker-1")
    assert told() == [(AttemptChange.STARTED, "first", 0)]
    runs.heartbeat(delivery)
    assert told() == []
    runs.report(delivery, TaskReport(TaskStatus.FAILED, reason="task_failed: once"))
    assert told() == [(AttemptChange.ENDED, "first", 0), (AttemptChange.SCHEDULED, "first", 1)]
    clock.advance(30)
    (retry,) = runs.poll(["first"], worker_id="worker-1")
    runs.report(retry, DONE)
    assert told() == [(AttemptChange.ENDED, "first", 1), (AttemptChange.SCHEDULED, "second", 0)]


def test_an_attempt_that_was_handed_to_another_worker_starts_again(told, runs):
    (delivery,) = runs.poll(["first"], worker_id="worker-1")
    told()
    assert runs.give_back(delivery)
    runs.poll(["first"], worker_id="worker-2")
    assert told() == [(AttemptChange.STARTED, "first", 0)]


def test_while_an_attempt_runs_its_lease_is_looked_at_now_and_then(seen_while, runs, run, clock):
    def start():
        runs.poll(["first"], worker_id="worker-1")

    def wait():
        clock.advance(6)

    def cancel():
        runs.cancel(run, "enough")

    seen_while(wait, start, wait, wait, cancel)
    assert runs.looked_at == [run, run]
