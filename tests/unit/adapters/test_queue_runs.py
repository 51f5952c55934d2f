"""Runs in the embedded queue: started, found, paused, cancelled and resumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.errors import (
    BranchBusyError,
    OrchestratorError,
    RunError,
    RunNotFoundError,
    UnknownAttemptError,
)
from perago.model.attempt import TaskStatus
from perago.model.outcome import TaskReport
from perago.model.run import RunPlan, RunStatus
from perago.testing.bench import ManualClock
from perago.testing.conformance.orchestrator_bench import (
    LEASE,
    RETRY_DELAY,
    completed,
    failed,
    moved,
    step,
    workspace,
)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def queue(tmp_path, clock):
    queue = EmbeddedQueue(tmp_path / "state" / "queue.db", clock=clock, durable=False)
    yield queue
    queue.close()


FIRST, SECOND = step("first"), step("second")
PLAN = RunPlan("chain", "chains:chain", (FIRST, SECOND))


def take(queue, wanted):
    (delivery,) = queue.poll([wanted.task_name], worker_id="worker")
    return delivery


def statuses(queue, run_id):
    return [record.status for record in queue.get(run_id).attempts]


class TestStarting:
    def test_what_is_handed_out_says_what_its_pipeline_is_called(self, queue):
        queue.start(PLAN, workspace())
        assert take(queue, FIRST).attempt.workflow_name == "chain"

    def test_a_run_begins_with_its_first_step_due_now(self, queue, clock):
        place = workspace()
        run = queue.get(queue.start(PLAN, place))
        assert (run.status, run.plan, run.workspace) == (RunStatus.RUNNING, PLAN, place)
        assert run.output_ref == place.ref
        assert statuses(queue, run.id) == [TaskStatus.SCHEDULED]
        assert queue.next_due(run.id) == clock.now()

    def test_a_given_id_is_used_and_only_once(self, queue):
        assert queue.start(PLAN, workspace(), run_id="mine") == "mine"
        with pytest.raises(RunError, match="mine"):
            queue.start(PLAN, workspace(), run_id="mine")

    @pytest.mark.parametrize("paused", [False, True])
    def test_a_branch_with_an_active_run_is_refused_naming_that_run(self, queue, paused):
        place = workspace()
        holder = queue.start(PLAN, place)
        if paused:
            queue.pause(holder, "lunch")
        with pytest.raises(BranchBusyError) as refused:
            queue.start(PLAN, place.moved_to("another-commit"))
        assert holder in refused.value.message
        assert ("PAUSED" if paused else "RUNNING") in refused.value.message
        assert all(word in refused.value.fix for word in ("resume", "cancel", "wait"))
        assert len(queue.runs()) == 1

    def test_other_branches_and_ended_runs_do_not_keep_a_run_from_starting(self, queue):
        place = workspace()
        first = queue.start(PLAN, place)
        queue.start(PLAN, workspace())
        queue.start(PLAN, place.model_copy(update={"repository": "films"}))
        queue.cancel(first, "wrong day")
        queue.start(PLAN, place)

    def test_runs_without_a_workspace_never_meet(self, queue):
        plan = RunPlan("free", "chains:free", (step("free", uses_workspace=False),))
        assert queue.start(plan, None) != queue.start(plan, None)

    def test_a_plan_that_needs_a_workspace_is_refused_without_one(self, queue):
        with pytest.raises(RunError, match="'first'"):
            queue.start(PLAN, None)

    def test_a_plan_without_steps_is_refused(self, queue):
        with pytest.raises(RunError, match="no steps"):
            queue.start(RunPlan("empty", "chains:empty", ()), None)


class TestLooking:
    def test_a_run_is_found_by_a_unique_beginning_of_its_id(self, queue):
        for run_id in ("aab1", "aab2", "aab"):
            queue.start(PLAN, workspace(), run_id=run_id)
        assert queue.find("aab1").id == "aab1"
        assert queue.find("aab").id == "aab"
        with pytest.raises(RunNotFoundError, match=r"3 runs .* 'aa': aab, aab2, aab1"):
            queue.find("aa")
        for nothing in ("b", "%", "", "aab12"):
            with pytest.raises(RunNotFoundError):
                queue.find(nothing)

    def test_an_unknown_run_is_an_error_everywhere(self, queue):
        for ask in (queue.get, queue.next_due, queue.resume):
            with pytest.raises(RunNotFoundError, match="'nope'"):
                ask("nope")
        for ask in (queue.pause, queue.cancel):
            with pytest.raises(RunNotFoundError, match="'nope'"):
                ask("nope", "why not")

    def test_runs_come_newest_first_and_no_more_than_asked(self, queue):
        ids = [queue.start(PLAN, workspace()) for _ in range(4)]
        assert [run.id for run in queue.runs(3)] == ids[::-1][:3]

    def test_the_record_tells_the_whole_story(self, queue, clock):
        run_id = queue.start(PLAN, workspace())
        clock.advance(1)
        began = clock.now()
        delivery = take(queue, FIRST)
        clock.advance(1)
        queue.report(delivery, failed("no luck"))
        failure, retry = queue.get(run_id).attempts
        assert failure.attempt == delivery.attempt
        assert (failure.started_at, failure.ended_at) == (began, began + 1)
        assert (failure.reason, failure.worker_id, failure.poll_count) == ("no luck", "worker", 1)
        assert (retry.attempt.seq, retry.attempt.retry_count) == (2, 1)
        assert retry.due_at == queue.next_due(run_id) == began + 1 + RETRY_DELAY

    def test_the_output_ref_follows_accepted_steps_only(self, queue):
        place = workspace("commit-a")
        run_id = queue.start(PLAN, place)
        queue.report(take(queue, FIRST), moved(place, "commit-b"))
        queue.report(take(queue, SECOND), failed())
        assert queue.get(run_id).output_ref == "commit-b"

    def test_nothing_is_due_while_the_only_attempt_runs(self, queue):
        run_id = queue.start(PLAN, workspace())
        take(queue, FIRST)
        assert queue.next_due(run_id) is None

    def test_a_failed_run_says_which_step_failed_and_why(self, queue):
        run_id = queue.start(PLAN, workspace())
        terminal = TaskReport(TaskStatus.FAILED_WITH_TERMINAL_ERROR, reason="no raw/*.jsonl")
        queue.report(take(queue, FIRST), terminal)
        assert queue.get(run_id).reason == "step 'first': no raw/*.jsonl"


class TestPausing:
    def test_a_paused_run_hands_out_nothing(self, queue):
        run_id = queue.start(PLAN, workspace())
        queue.pause(run_id, "lunch")
        assert queue.poll([FIRST.task_name], worker_id="w") == []
        assert (queue.get(run_id).status, queue.get(run_id).reason) == (RunStatus.PAUSED, "lunch")

    def test_an_attempt_in_progress_may_end_while_its_run_is_paused(self, queue):
        run_id = queue.start(PLAN, workspace())
        delivery = take(queue, FIRST)
        queue.pause(run_id, "lunch")
        assert queue.report(delivery, completed()).accepted
        assert queue.poll([SECOND.task_name], worker_id="w") == []
        queue.resume(run_id)
        assert take(queue, SECOND).attempt.retry_count == 0

    def test_leases_do_not_run_out_while_paused(self, queue, clock):
        run_id = queue.start(PLAN, workspace())
        attempt = take(queue, FIRST).attempt
        queue.pause(run_id, "lunch")
        clock.advance(LEASE + 1)
        assert queue.reload(attempt).status is TaskStatus.IN_PROGRESS

    def test_an_ended_run_cannot_be_paused(self, queue):
        run_id = queue.start(PLAN, workspace())
        queue.cancel(run_id, "wrong day")
        with pytest.raises(RunError, match="TERMINATED"):
            queue.pause(run_id, "lunch")


class TestCancelling:
    def test_a_cancelled_run_is_terminated_and_its_attempt_canceled(self, queue):
        run_id = queue.start(PLAN, workspace())
        delivery = take(queue, FIRST)
        queue.cancel(run_id, "wrong day")
        run = queue.get(run_id)
        assert (run.status, run.reason) == (RunStatus.TERMINATED, "wrong day")
        assert queue.reload(delivery.attempt).status is TaskStatus.CANCELED
        assert not queue.heartbeat(delivery)
        receipt = queue.report(delivery, completed())
        assert (receipt.accepted, receipt.status) == (False, TaskStatus.CANCELED)

    def test_a_scheduled_attempt_is_canceled_too(self, queue):
        run_id = queue.start(PLAN, workspace())
        queue.cancel(run_id, "wrong day")
        assert statuses(queue, run_id) == [TaskStatus.CANCELED]
        assert queue.poll([FIRST.task_name], worker_id="w") == []

    def test_a_paused_run_can_be_cancelled(self, queue):
        run_id = queue.start(PLAN, workspace())
        queue.pause(run_id, "lunch")
        queue.cancel(run_id, "wrong day")
        assert queue.get(run_id).status is RunStatus.TERMINATED

    def test_an_ended_run_cannot_be_cancelled(self, queue):
        run_id = queue.start(PLAN, workspace())
        queue.cancel(run_id, "wrong day")
        with pytest.raises(RunError, match="TERMINATED and can't be cancelled"):
            queue.cancel(run_id, "again")


class TestResuming:
    def test_what_a_vanished_runner_had_in_hand_is_tried_again_under_a_new_id(self, queue):
        run_id = queue.start(PLAN, workspace())
        orphan = take(queue, FIRST)
        queue.resume(run_id)
        successor = take(queue, FIRST)
        assert queue.reload(orphan.attempt).status is TaskStatus.TIMED_OUT
        assert "runner is gone" in queue.get(run_id).attempts[0].reason
        assert successor.attempt.task_id != orphan.attempt.task_id
        assert successor.attempt.retry_count == 1
        assert successor.input == orphan.input
        assert not queue.report(orphan, completed()).accepted

    def test_resuming_again_and_again_never_uses_up_the_run(self, queue):
        run_id = queue.start(PLAN, workspace())
        for retry_count in range(6):
            assert take(queue, FIRST).attempt.retry_count == retry_count
            queue.resume(run_id)
        assert queue.get(run_id).status is RunStatus.RUNNING

    def test_an_attempt_that_was_given_back_is_replaced_not_delivered_again(self, queue):
        run_id = queue.start(PLAN, workspace())
        orphan = take(queue, FIRST)
        queue.give_back(orphan)
        queue.resume(run_id)
        assert take(queue, FIRST).attempt.task_id != orphan.attempt.task_id
        assert queue.poll([FIRST.task_name], worker_id="w") == []

    def test_an_attempt_nobody_polled_stays_with_its_retry_delay(self, queue, clock):
        run_id = queue.start(PLAN, workspace())
        queue.report(take(queue, FIRST), failed())
        queue.resume(run_id)
        assert statuses(queue, run_id) == [TaskStatus.FAILED, TaskStatus.SCHEDULED]
        assert queue.next_due(run_id) == clock.now() + RETRY_DELAY

    def test_a_paused_run_goes_on(self, queue):
        run_id = queue.start(PLAN, workspace())
        orphan = take(queue, FIRST).attempt
        queue.pause(run_id, "lunch")
        queue.resume(run_id)
        run = queue.get(run_id)
        assert (run.status, run.reason) == (RunStatus.RUNNING, None)
        assert take(queue, FIRST).attempt.task_id != orphan.task_id

    def test_a_failed_run_gets_one_more_attempt_of_the_step_that_failed(self, queue):
        place = workspace()
        run_id = queue.start(PLAN, place)
        queue.report(take(queue, FIRST), moved(place, "commit-b"))
        terminal = TaskReport(TaskStatus.FAILED_WITH_TERMINAL_ERROR, reason="no")
        queue.report(take(queue, SECOND), terminal)
        queue.resume(run_id)
        again = take(queue, SECOND)
        assert again.attempt.retry_count == 1
        assert again.input["workspace"]["ref"] == "commit-b"
        queue.report(again, completed())
        assert queue.get(run_id).status is RunStatus.COMPLETED

    def test_a_run_resumed_beyond_its_retry_limit_fails_at_the_next_failure(self, queue, clock):
        run_id = queue.start(PLAN, workspace())
        queue.report(take(queue, FIRST), failed())
        clock.advance(RETRY_DELAY)
        queue.report(take(queue, FIRST), failed())
        assert queue.get(run_id).status is RunStatus.FAILED
        queue.resume(run_id)
        beyond = take(queue, FIRST)
        assert beyond.attempt.retry_count == 2
        queue.report(beyond, failed())
        assert queue.get(run_id).status is RunStatus.FAILED

    def test_a_timed_out_run_can_be_resumed(self, queue, clock):
        once = step("once", retries=0)
        run_id = queue.start(RunPlan("chain", "chains:chain", (once,)), workspace())
        take(queue, once)
        clock.advance(LEASE)
        queue.poll([], worker_id="idle")
        assert queue.get(run_id).status is RunStatus.TIMED_OUT
        queue.resume(run_id)
        assert take(queue, once).attempt.retry_count == 1

    def test_a_failed_run_cannot_come_back_while_another_holds_its_branch(self, queue):
        place = workspace()
        run_id = queue.start(PLAN, place)
        terminal = TaskReport(TaskStatus.FAILED_WITH_TERMINAL_ERROR, reason="no")
        queue.report(take(queue, FIRST), terminal)
        other = queue.start(PLAN, place)
        with pytest.raises(BranchBusyError, match=other):
            queue.resume(run_id)
        assert queue.get(run_id).status is RunStatus.FAILED

    def test_completed_and_cancelled_runs_are_over(self, queue):
        cancelled = queue.start(PLAN, workspace())
        queue.cancel(cancelled, "wrong day")
        done = queue.start(PLAN, workspace())
        queue.report(take(queue, FIRST), completed())
        queue.report(take(queue, SECOND), completed())
        for run_id, status in ((cancelled, "TERMINATED"), (done, "COMPLETED")):
            with pytest.raises(RunError, match=status):
                queue.resume(run_id)


class TestWorkers:
    def test_a_queue_for_one_run_polls_that_run_only(self, queue, tmp_path, clock):
        mine, _theirs = (queue.start(PLAN, workspace()) for _ in range(2))
        own = EmbeddedQueue(tmp_path / "state" / "queue.db", clock=clock, only_run=mine)
        deliveries = own.poll([FIRST.task_name], worker_id="w", limit=5)
        own.close()
        assert [delivery.attempt.workflow_instance_id for delivery in deliveries] == [mine]

    def test_a_redelivery_counts_another_poll_and_names_the_new_worker(self, queue):
        run_id = queue.start(PLAN, workspace())
        queue.give_back(take(queue, FIRST))
        queue.poll([FIRST.task_name], worker_id="twin")
        (record,) = queue.get(run_id).attempts
        assert (record.poll_count, record.worker_id) == (2, "twin")

    def test_the_same_step_of_another_run_makes_no_attempt_less_than_the_latest(self, queue):
        queue.start(PLAN, workspace())
        older = take(queue, FIRST)
        queue.start(PLAN, workspace())
        queue.report(take(queue, FIRST), failed())
        assert queue.reload(older.attempt).is_latest

    def test_an_unknown_attempt_is_refused_by_every_call(self, queue):
        queue.start(PLAN, workspace())
        delivery = take(queue, FIRST)
        stranger = replace(delivery, attempt=replace(delivery.attempt, task_id="stranger"))
        for call in (
            lambda: queue.reload(stranger.attempt),
            lambda: queue.heartbeat(stranger),
            lambda: queue.report(stranger, completed()),
            lambda: queue.give_back(stranger),
        ):
            with pytest.raises(UnknownAttemptError, match="'stranger'"):
                call()

    @pytest.mark.parametrize("status", ["SCHEDULED", "IN_PROGRESS", "TIMED_OUT", "CANCELED"])
    def test_only_an_end_can_be_reported(self, queue, status):
        queue.start(PLAN, workspace())
        delivery = take(queue, FIRST)
        with pytest.raises(OrchestratorError, match=status):
            queue.report(delivery, TaskReport(TaskStatus(status)))
        assert queue.reload(delivery.attempt).status is TaskStatus.IN_PROGRESS
