"""What every orchestrator adapter must do, as a pytest class to subclass.

::

    class TestMyOrchestrator(OrchestratorConformance):
        @pytest.fixture
        def bench(self) -> OrchestratorBench: ...

The suite only waits through :meth:`OrchestratorBench.advance`, a few seconds at a time, so it runs
at once on a manual clock and in bearable time on a real server.
"""
# ruff: noqa: PLR2004, S101 - tests assert, and compare with numbers

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from perago.errors import UnknownAttemptError
from perago.model.attempt import TaskStatus
from perago.model.outcome import TaskReport
from perago.model.run import ResultField, RunStatus
from perago.testing.conformance.orchestrator_bench import (
    LEASE,
    RETRY_DELAY,
    completed,
    failed,
    moved,
    status_of,
    step,
    take,
    workspace,
)
from perago.testing.conformance.redelivery import Redelivery

if TYPE_CHECKING:
    from perago.testing.conformance.orchestrator_bench import OrchestratorBench

A_YEAR = 365 * 24 * 3600
"""What stands for a lease without end where there always is one."""


class OrchestratorConformance(Redelivery):
    """Every sentence of ``ports/orchestrator.py``, and the retries and leases behind them."""

    @pytest.fixture
    def bench(self) -> OrchestratorBench:
        """Give the adapter under test: to be overridden."""
        raise NotImplementedError

    # --- poll --------------------------------------------------------------------------------

    def test_a_poll_hands_out_a_scheduled_task_with_its_input_and_lease(
        self, bench: OrchestratorBench
    ) -> None:
        first, place = step("first", params={"year": 1999}), workspace()
        run_id = bench.start(first, workspace=place)

        delivery = take(bench, first, worker_id="worker-1")

        assert delivery.input == {"workspace": place.model_dump(), "params": {"year": 1999}}
        assert (delivery.worker_id, delivery.poll_count) == ("worker-1", 1)
        assert delivery.response_seconds == LEASE
        assert delivery.attempt.workflow_instance_id == run_id
        assert delivery.attempt.reference_task_name == "first"
        assert delivery.attempt.task_name == first.task_name
        assert delivery.attempt.retry_count == 0
        assert status_of(bench, delivery) is TaskStatus.IN_PROGRESS

    def test_a_workspace_free_task_gets_params_only(self, bench: OrchestratorBench) -> None:
        only = step("only", params={"year": 1999}, uses_workspace=False)
        bench.start(only, workspace=None)
        assert take(bench, only).input == {"params": {"year": 1999}}

    def test_a_poll_hands_out_only_the_tasks_it_names(self, bench: OrchestratorBench) -> None:
        mine, theirs = step("mine"), step("theirs")
        bench.start(theirs, workspace=workspace())
        assert bench.orchestrator.poll([mine.task_name], worker_id="w") == []
        both = [mine.task_name, theirs.task_name]
        assert len(bench.orchestrator.poll(both, worker_id="w")) == 1

    def test_a_poll_takes_at_most_its_limit(self, bench: OrchestratorBench) -> None:
        shared = step("shared")
        for _ in range(3):
            bench.start(shared, workspace=workspace())
        assert len(bench.orchestrator.poll([shared.task_name], worker_id="w")) == 1
        rest = bench.orchestrator.poll([shared.task_name], worker_id="w", limit=5)
        assert len({delivery.attempt.task_id for delivery in rest}) == 2

    def test_a_task_in_progress_is_not_handed_out_again(self, bench: OrchestratorBench) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        take(bench, first)
        assert bench.orchestrator.poll([first.task_name], worker_id="another") == []

    # --- reload ------------------------------------------------------------------------------

    def test_reload_says_what_the_attempt_is_as_often_as_asked(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        attempt = take(bench, first).attempt
        once, again = bench.orchestrator.reload(attempt), bench.orchestrator.reload(attempt)
        assert once == again
        assert once.status is TaskStatus.IN_PROGRESS
        assert (once.workflow_instance_id, once.task_id, once.retry_count) == (
            run_id,
            attempt.task_id,
            0,
        )

    def test_a_retried_attempt_is_not_the_latest_for_its_reference(
        self, bench: OrchestratorBench
    ) -> None:
        first, second = step("first", retries=2), step("second")
        bench.start(first, second, workspace=workspace())
        failure = take(bench, first)
        assert bench.orchestrator.reload(failure.attempt).is_latest
        bench.orchestrator.report(failure, failed())
        bench.advance(RETRY_DELAY + 1)
        zombie = take(bench, first)
        bench.advance(LEASE + 1)
        bench.advance(RETRY_DELAY + 1)
        last = take(bench, first)
        bench.orchestrator.report(last, completed())
        following = take(bench, second)

        latest = [
            bench.orchestrator.reload(delivery.attempt).is_latest
            for delivery in (failure, zombie, last, following)
        ]
        assert latest == [False, False, True, True]

    def test_an_unknown_attempt_is_an_error(self, bench: OrchestratorBench) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        stranger = replace(take(bench, first).attempt, task_id=str(uuid.uuid4()))
        with pytest.raises(UnknownAttemptError, match=stranger.task_id):
            bench.orchestrator.reload(stranger)

    # --- heartbeat and lease -----------------------------------------------------------------

    def test_heartbeats_keep_a_lease_alive(self, bench: OrchestratorBench) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        for _ in range(4):  # twice as long as without
            bench.advance(LEASE / 2)
            assert bench.orchestrator.heartbeat(delivery)
        assert status_of(bench, delivery) is TaskStatus.IN_PROGRESS

    def test_a_lost_lease_times_the_attempt_out_and_a_retry_follows_while_the_first_still_runs(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        zombie = take(bench, first)

        bench.advance(LEASE + 1)
        assert status_of(bench, zombie) is TaskStatus.TIMED_OUT
        bench.advance(RETRY_DELAY + 1)
        retry = take(bench, first)

        assert retry.attempt.task_id != zombie.attempt.task_id
        assert retry.attempt.retry_count == 1
        assert retry.input == zombie.input

    def test_a_heartbeat_after_the_time_out_is_refused_and_revives_nothing(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        zombie = take(bench, first)
        bench.advance(LEASE + 1)
        assert not bench.orchestrator.heartbeat(zombie)
        assert status_of(bench, zombie) is TaskStatus.TIMED_OUT

    def test_a_report_after_the_time_out_is_ignored_without_an_error(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        zombie = take(bench, first)
        bench.advance(LEASE + 1)

        receipt = bench.orchestrator.report(zombie, completed())

        assert (receipt.accepted, receipt.status) == (False, TaskStatus.TIMED_OUT)
        assert bench.run_status(run_id) is RunStatus.RUNNING
        bench.advance(RETRY_DELAY + 1)
        assert bench.orchestrator.report(take(bench, first), completed()).accepted
        assert bench.run_status(run_id) is RunStatus.COMPLETED

    def test_a_lease_lost_once_too_often_times_the_run_out(self, bench: OrchestratorBench) -> None:
        first = step("first", retries=0)
        run_id = bench.start(first, workspace=workspace())
        take(bench, first)
        bench.advance(LEASE + 1)
        assert bench.run_status(run_id) is RunStatus.TIMED_OUT

    def test_no_response_time_out_means_a_lease_without_end(self, bench: OrchestratorBench) -> None:
        first = step("first", response_seconds=0)
        bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        bench.advance(LEASE + 1)
        assert delivery.response_seconds == 0 or delivery.response_seconds >= A_YEAR
        assert status_of(bench, delivery) is TaskStatus.IN_PROGRESS

    # --- report ------------------------------------------------------------------------------

    def test_the_ref_of_an_accepted_completion_is_known_and_no_other(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        one = take(bench, first)
        task_id = one.attempt.task_id
        assert bench.orchestrator.accepted_ref(task_id) is None
        assert bench.orchestrator.accepted_ref("no-such-run") is None
        bench.orchestrator.report(one, moved(workspace(), "C"))
        assert bench.orchestrator.accepted_ref(task_id) == "C"

    def test_an_accepted_completion_is_final(self, bench: OrchestratorBench) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        receipt = bench.orchestrator.report(delivery, completed())
        assert (receipt.accepted, receipt.status) == (True, TaskStatus.COMPLETED)
        assert status_of(bench, delivery) is TaskStatus.COMPLETED
        assert bench.run_status(run_id) is RunStatus.COMPLETED
        assert not bench.orchestrator.heartbeat(delivery)

    def test_repeating_an_accepted_report_is_accepted_and_changes_nothing(
        self, bench: OrchestratorBench
    ) -> None:
        first, second = step("first"), step("second")
        bench.start(first, second, workspace=workspace())
        delivery = take(bench, first)
        assert bench.orchestrator.report(delivery, completed()).accepted
        assert bench.orchestrator.report(delivery, completed()).accepted
        assert len(bench.orchestrator.poll([second.task_name], worker_id="w", limit=5)) == 1

    def test_another_report_after_the_accepted_one_is_ignored(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        bench.orchestrator.report(delivery, completed())
        receipt = bench.orchestrator.report(delivery, failed())
        assert (receipt.accepted, receipt.status) == (False, TaskStatus.COMPLETED)
        assert bench.run_status(run_id) is RunStatus.COMPLETED

    def test_a_failure_is_retried_after_its_delay_under_a_new_task_id(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        before = take(bench, first)
        receipt = bench.orchestrator.report(before, failed())
        assert (receipt.accepted, receipt.status) == (True, TaskStatus.FAILED)
        assert bench.orchestrator.poll([first.task_name], worker_id="w") == []

        bench.advance(RETRY_DELAY + 1)
        retry = take(bench, first)

        assert retry.attempt.task_id != before.attempt.task_id
        assert retry.attempt.retry_count == 1
        assert retry.attempt.seq > before.attempt.seq
        assert retry.input == before.input
        assert status_of(bench, before) is TaskStatus.FAILED
        assert bench.run_status(run_id) is RunStatus.RUNNING

    def test_a_failure_beyond_the_retry_limit_fails_the_run(self, bench: OrchestratorBench) -> None:
        first = step("first", retries=1)
        run_id = bench.start(first, workspace=workspace())
        bench.orchestrator.report(take(bench, first), failed())
        bench.advance(RETRY_DELAY + 1)
        bench.orchestrator.report(take(bench, first), failed())
        assert bench.run_status(run_id) is RunStatus.FAILED
        bench.advance(RETRY_DELAY + 1)
        assert bench.orchestrator.poll([first.task_name], worker_id="w") == []

    def test_a_terminal_error_fails_the_run_at_once(self, bench: OrchestratorBench) -> None:
        first = step("first", retries=3)
        run_id = bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        terminal = TaskReport(TaskStatus.FAILED_WITH_TERMINAL_ERROR, reason="wrong input")
        receipt = bench.orchestrator.report(delivery, terminal)
        assert (receipt.accepted, receipt.status) == (True, terminal.status)
        assert bench.run_status(run_id) is RunStatus.FAILED
        bench.advance(RETRY_DELAY + 1)
        assert bench.orchestrator.poll([first.task_name], worker_id="w") == []

    # --- writers -----------------------------------------------------------------------------

    def test_a_branch_is_written_by_its_active_run_until_that_ends(
        self, bench: OrchestratorBench
    ) -> None:
        first, place = step("first"), workspace()
        run_id = bench.start(first, workspace=place)
        bench.start(step("elsewhere"), workspace=workspace())
        bench.advance(1)  # an index of runs may lag behind them
        assert list(bench.orchestrator.writers(place.repository, place.branch)) == [run_id]
        assert list(bench.orchestrator.writers(place.repository, f"{place.branch}-not")) == []
        assert list(bench.orchestrator.writers(f"{place.repository}-not", place.branch)) == []

        bench.orchestrator.report(take(bench, first), completed())
        bench.advance(1)
        assert list(bench.orchestrator.writers(place.repository, place.branch)) == []

    # --- the chain ---------------------------------------------------------------------------

    def test_a_step_is_not_handed_out_before_the_one_before_it_completed(
        self, bench: OrchestratorBench
    ) -> None:
        first, second = step("first"), step("second")
        bench.start(first, second, workspace=workspace())
        assert bench.orchestrator.poll([second.task_name], worker_id="w") == []
        delivery = take(bench, first)
        assert bench.orchestrator.poll([second.task_name], worker_id="w") == []
        bench.orchestrator.report(delivery, completed())
        assert take(bench, second).attempt.reference_task_name == "second"

    def test_results_and_refs_flow_into_later_steps(self, bench: OrchestratorBench) -> None:
        place = workspace("commit-a")
        ingest = step("ingest")
        count = step(
            "count", uses_workspace=False, params={"of": ResultField("ingest", ("songs",))}
        )
        rank = step("rank", params={"top": ResultField("count", ("best", "n")), "by": "plays"})
        run_id = bench.start(ingest, count, rank, workspace=place)

        bench.orchestrator.report(take(bench, ingest), moved(place, "commit-b", {"songs": 12}))
        counted = take(bench, count)
        assert counted.input == {"params": {"of": 12}}
        bench.orchestrator.report(counted, completed({"result": {"best": {"n": 3}}}))
        ranked = take(bench, rank)
        assert ranked.input == {
            "workspace": place.moved_to("commit-b").model_dump(),
            "params": {"top": 3, "by": "plays"},
        }
        bench.orchestrator.report(ranked, moved(place, "commit-c"))
        assert bench.run_status(run_id) is RunStatus.COMPLETED
