"""What the queue knows of a branch: who writes it, who wrote it last, which run may go on."""

from __future__ import annotations

import pytest

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.errors import RunError
from perago.model.attempt import TaskStatus
from perago.model.outcome import TaskReport
from perago.model.run import RunPlan, RunStatus
from perago.testing.bench import ManualClock
from perago.testing.conformance.orchestrator_bench import LEASE, completed, moved, step, workspace

FIRST, SECOND, LONELY = step("first"), step("second"), step("lonely", uses_workspace=False)
PLAN = RunPlan("chain", "chains:chain", (FIRST, SECOND))
NO = TaskReport(TaskStatus.FAILED_WITH_TERMINAL_ERROR, reason="no")


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def queue(tmp_path, clock):
    queue = EmbeddedQueue(tmp_path / "queue.db", clock=clock, durable=False)
    yield queue
    queue.close()


@pytest.fixture
def place():
    return workspace("commit-a")


def take(queue, wanted):
    (delivery,) = queue.poll([wanted.task_name], worker_id="worker")
    return delivery


def fail(queue, wanted=FIRST):
    queue.report(take(queue, wanted), NO)


def failed_run(queue, place, plan=PLAN):
    run_id = queue.start(plan, place)
    fail(queue, plan.steps[0])
    return run_id


def accepted_then_failed_run(queue, place):
    run_id = queue.start(PLAN, place)
    queue.report(take(queue, FIRST), moved(place, "commit-b"))
    fail(queue, SECOND)
    return run_id


class TestSuperseded:
    """To a resumed run, the accepted publication of a later run would look abandoned."""

    def test_a_run_cannot_go_on_once_a_later_one_has_published_on_its_branch(self, queue, place):
        older = failed_run(queue, place)
        newer = accepted_then_failed_run(queue, place)
        with pytest.raises(RunError) as refused:
            queue.resume(older)
        assert older in refused.value.message
        assert newer in refused.value.message
        assert "--from-head" in refused.value.fix
        assert queue.get(older).status is RunStatus.FAILED
        queue.resume(newer)

    def test_an_earlier_run_that_was_resumed_supersedes_the_later_one(self, queue, place):
        older = failed_run(queue, place)
        newer = failed_run(queue, place)
        queue.resume(older)
        queue.report(take(queue, FIRST), moved(place, "commit-b"))
        fail(queue, SECOND)
        with pytest.raises(RunError, match=older):
            queue.resume(newer)
        queue.resume(older)

    def test_a_completion_that_changed_nothing_counts_too(self, queue, place):
        """It took the head as it found it, and that may be what the older run left there."""
        older = failed_run(queue, place)
        queue.start(PLAN, place.moved_to("commit-h"))
        queue.report(take(queue, FIRST), moved(place, "commit-h"))
        fail(queue, SECOND)
        with pytest.raises(RunError, match="--from-head"):
            queue.resume(older)

    def test_later_runs_that_published_nothing_there_are_no_hindrance(self, queue, place):
        older = accepted_then_failed_run(queue, place)
        failed_run(queue, place)
        accepted_then_failed_run(queue, workspace("commit-a"))
        accepted_then_failed_run(queue, place.model_copy(update={"repository": "films"}))
        queue.start(RunPlan("mixed", "chains:mixed", (LONELY, SECOND)), place)
        queue.report(take(queue, LONELY), completed())
        fail(queue, SECOND)
        queue.resume(older)
        assert queue.get(older).status is RunStatus.RUNNING

    def test_runs_without_a_workspace_supersede_nobody(self, queue):
        plan = RunPlan("free", "chains:free", (LONELY, step("last", uses_workspace=False)))
        older = failed_run(queue, None, plan)
        queue.start(plan, None)
        queue.report(take(queue, LONELY), completed())
        queue.resume(older)


class TestOnABranch:
    @pytest.mark.parametrize("paused", [False, True])
    def test_the_active_run_is_the_running_or_paused_one(self, queue, place, paused):
        failed_run(queue, place)
        active = queue.start(PLAN, place)
        if paused:
            queue.pause(active, "lunch")
        assert queue.active_on(place.repository, place.branch) == queue.get(active)

    def test_a_branch_nobody_writes_has_no_active_run(self, queue, place):
        failed_run(queue, place)
        queue.start(PLAN, workspace())
        assert queue.active_on(place.repository, place.branch) is None

    def test_the_last_run_is_the_newest_however_it_ended(self, queue, place):
        failed_run(queue, place)
        last = failed_run(queue, place)
        queue.start(PLAN, workspace())
        assert queue.last_on(place.repository, place.branch) == queue.get(last)
        assert queue.last_on(place.repository, "elsewhere") is None


class TestResumable:
    def test_it_is_the_newest_unfinished_run(self, queue, clock, place):
        assert queue.resumable(None) is None
        failed = failed_run(queue, place)
        assert queue.resumable(None) == queue.get(failed)
        once = step("once", retries=0)
        timed_out = queue.start(RunPlan("once", "chains:once", (once,)), workspace())
        take(queue, once)
        clock.advance(LEASE)
        assert queue.poll([], worker_id="idle") == []
        assert queue.get(timed_out).status is RunStatus.TIMED_OUT
        assert queue.resumable(None).id == timed_out
        paused = queue.start(PLAN, workspace())
        queue.pause(paused, "lunch")
        assert queue.resumable(None).id == paused
        running = queue.start(PLAN, workspace())
        assert queue.resumable(None).id == running
        queue.cancel(running, "wrong day")
        assert queue.resumable(None).id == paused

    @pytest.mark.parametrize("target", ["chain", "chains:chain"])
    def test_it_can_be_asked_for_by_target_or_name(self, queue, target):
        wanted = queue.start(PLAN, workspace())
        queue.start(RunPlan("other", "chains:other", (FIRST,)), workspace())
        assert queue.resumable(target).id == wanted
        assert queue.resumable("nothing") is None

    def test_a_superseded_run_is_passed_over(self, queue, place):
        other = failed_run(queue, workspace())
        failed_run(queue, place)
        queue.start(PLAN, place)
        queue.report(take(queue, FIRST), moved(place, "commit-b"))
        queue.report(take(queue, SECOND), moved(place, "commit-c"))
        assert queue.resumable(None).id == other
