"""Time-outs and limits as the embedded queue applies them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.model.attempt import TaskStatus
from perago.model.controls import ExecutionLimits, RetryPolicy, TaskControls, TimeoutPolicy
from perago.model.run import RunPlan, RunStatus
from perago.testing.bench import ManualClock
from perago.testing.conformance.orchestrator_bench import completed, failed, step, workspace


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def queue(tmp_path, clock):
    queue = EmbeddedQueue(tmp_path / "queue.db", clock=clock, durable=False)
    yield queue
    queue.close()


def start(queue, *, retries=1, delay=0, limits=None, **timeout):
    controls = TaskControls(
        retry=RetryPolicy(count=retries, delay_seconds=delay),
        timeout=TimeoutPolicy(**timeout),
        limits=limits or ExecutionLimits(),
    )
    only = replace(step("only"), task_name="only", controls=controls)
    return queue.start(RunPlan("chain", "chains:chain", (only,)), workspace())


def poll(queue, limit=1):
    return queue.poll(["only"], worker_id="w", limit=limit)


def story(queue, run_id):
    run = queue.get(run_id)
    return run.status, [record.status for record in run.attempts]


class TestTimeOuts:
    def test_running_too_long_ends_the_run_by_default(self, queue, clock):
        run_id = start(queue, seconds=10)
        poll(queue)
        clock.advance(10)
        queue.poll([], worker_id="idle")
        assert story(queue, run_id) == (RunStatus.TIMED_OUT, [TaskStatus.TIMED_OUT])
        assert "timeout.seconds=10" in queue.get(run_id).reason

    def test_running_too_long_is_retried_where_the_policy_says_so(self, queue, clock):
        run_id = start(queue, seconds=10, policy="RETRY")
        poll(queue)
        clock.advance(10)
        assert len(poll(queue)) == 1
        assert story(queue, run_id) == (
            RunStatus.RUNNING,
            [TaskStatus.TIMED_OUT, TaskStatus.IN_PROGRESS],
        )

    def test_running_too_long_is_only_noted_where_the_policy_says_so(self, queue, clock):
        run_id = start(queue, seconds=10, response_seconds=0, policy="ALERT_ONLY")
        (delivery,) = poll(queue)
        clock.advance(10)
        queue.poll([], worker_id="idle")
        (record,) = queue.get(run_id).attempts
        assert record.status is TaskStatus.IN_PROGRESS
        assert "timeout.seconds=10" in record.reason
        assert queue.report(delivery, completed()).accepted
        assert "timeout.seconds=10" in queue.get(run_id).attempts[0].reason

    def test_heartbeats_do_not_extend_the_time_an_attempt_may_take(self, queue, clock):
        run_id = start(queue, seconds=10, response_seconds=4)
        (delivery,) = poll(queue)
        for _ in range(3):
            clock.advance(3)
            assert queue.heartbeat(delivery)
        clock.advance(1)
        assert not queue.heartbeat(delivery)
        assert queue.get(run_id).status is RunStatus.TIMED_OUT

    def test_a_redelivery_does_not_restart_the_time_an_attempt_may_take(self, queue, clock):
        run_id = start(queue, seconds=10)
        (delivery,) = poll(queue)
        clock.advance(6)
        queue.give_back(delivery)
        poll(queue)
        clock.advance(4)
        queue.poll([], worker_id="idle")
        assert queue.get(run_id).status is RunStatus.TIMED_OUT

    def test_a_task_nobody_polls_times_the_run_out(self, queue, clock):
        run_id = start(queue, poll_seconds=10)
        clock.advance(10)
        queue.poll([], worker_id="idle")
        assert story(queue, run_id) == (RunStatus.TIMED_OUT, [TaskStatus.TIMED_OUT])

    def test_waiting_out_a_retry_delay_is_not_waiting_for_a_poll(self, queue, clock):
        run_id = start(queue, poll_seconds=10, delay=60)
        (delivery,) = poll(queue)
        queue.report(delivery, failed())
        clock.advance(65)
        queue.poll([], worker_id="idle")
        assert queue.get(run_id).status is RunStatus.RUNNING
        clock.advance(5)
        queue.poll([], worker_id="idle")
        assert queue.get(run_id).status is RunStatus.TIMED_OUT

    def test_all_attempts_of_a_step_share_its_total_time(self, queue, clock):
        run_id = start(queue, retries=9, total_seconds=25, seconds=10, policy="RETRY")
        for _ in range(2):
            assert len(poll(queue)) == 1
            clock.advance(10)
        assert len(poll(queue)) == 1
        clock.advance(5)
        queue.poll([], worker_id="idle")
        assert queue.get(run_id).status is RunStatus.TIMED_OUT
        assert "timeout.total_seconds=25" in queue.get(run_id).reason

    def test_a_resumed_step_gets_its_total_time_anew(self, queue, clock):
        run_id = start(queue, total_seconds=25)
        poll(queue)
        clock.advance(25)
        queue.poll([], worker_id="idle")
        queue.resume(run_id)
        clock.advance(24)
        assert len(poll(queue)) == 1
        assert queue.get(run_id).status is RunStatus.RUNNING

    def test_a_report_on_a_lease_that_ran_out_unnoticed_is_ignored(self, queue, clock):
        start(queue, response_seconds=5)
        (delivery,) = poll(queue)
        clock.advance(5)
        receipt = queue.report(delivery, completed())
        assert (receipt.accepted, receipt.status) == (False, TaskStatus.TIMED_OUT)

    def test_sweeping_twice_changes_nothing_more(self, queue, clock):
        run_id = start(queue, retries=5, response_seconds=5)
        poll(queue)
        clock.advance(5)
        queue.poll([], worker_id="idle")
        before = queue.get(run_id)
        queue.poll([], worker_id="idle")
        assert queue.get(run_id) == before


class TestLimits:
    def test_no_more_attempts_run_at_once_than_the_task_allows(self, queue):
        for _ in range(3):
            start(queue, limits=ExecutionLimits(concurrent_exec_limit=2))
        running = poll(queue, limit=5)
        assert len(running) == 2
        assert poll(queue) == []
        queue.report(running[0], completed())
        assert len(poll(queue, limit=5)) == 1

    def test_a_redelivery_does_not_compete_with_itself(self, queue):
        start(queue, limits=ExecutionLimits(concurrent_exec_limit=1))
        (delivery,) = poll(queue)
        queue.give_back(delivery)
        assert len(poll(queue)) == 1

    def test_no_more_attempts_start_in_a_window_than_the_task_allows(self, queue, clock):
        limits = ExecutionLimits(rate_limit_per_frequency=2, rate_limit_frequency_in_seconds=10)
        for _ in range(3):
            start(queue, limits=limits)
        for delivery in poll(queue, limit=5):
            queue.report(delivery, completed())
        clock.advance(9.5)
        assert poll(queue) == []
        clock.advance(0.5)
        assert len(poll(queue)) == 1

    def test_a_task_at_its_limit_lets_others_pass(self, queue):
        for _ in range(2):
            start(queue, limits=ExecutionLimits(concurrent_exec_limit=1))
        free = step("free")
        queue.start(RunPlan("chain", "chains:chain", (free,)), workspace())
        names = ["only", free.task_name]
        taken = queue.poll(names, worker_id="w", limit=5)
        assert sorted(d.attempt.task_name for d in taken) == sorted(names)
