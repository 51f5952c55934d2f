"""What must become of a task that is handed out more than once, or given back."""

# ruff: noqa: S101 - tests assert

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from perago.model.run import RunStatus
from perago.testing.conformance.orchestrator_bench import (
    LEASE,
    RETRY_DELAY,
    completed,
    delivered_twice,
    moved,
    step,
    take,
    workspace,
)

if TYPE_CHECKING:
    from perago.testing.conformance.orchestrator_bench import OrchestratorBench


class Redelivery:
    """A part of :class:`~perago.testing.conformance.orchestrator.OrchestratorConformance`."""

    # --- two workers with one task id --------------------------------------------------------

    def test_a_requeued_task_reaches_a_second_worker_under_the_same_id(
        self, bench: OrchestratorBench
    ) -> None:
        one, twin = delivered_twice(bench)
        assert twin.attempt == one.attempt
        assert twin.input == one.input
        assert (one.worker_id, one.poll_count) == ("one", 1)
        assert (twin.worker_id, twin.poll_count) == ("twin", 2)

    def test_reload_names_the_worker_a_task_was_delivered_to_last(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        one = take(bench, first, worker_id="one")
        before = bench.orchestrator.reload(one.attempt)
        bench.requeue(one)
        take(bench, first, worker_id="twin")
        after = bench.orchestrator.reload(one.attempt)

        assert (before.poll_count, before.worker_id) == (1, "one")
        assert (after.poll_count, after.worker_id) == (2, "twin")
        assert replace(after, poll_count=1, worker_id="one") == before

    def test_only_the_last_holder_of_a_task_is_told_that_its_lease_goes_on(
        self, bench: OrchestratorBench
    ) -> None:
        one, twin = delivered_twice(bench)
        assert not bench.orchestrator.heartbeat(one)
        assert bench.orchestrator.heartbeat(twin)
        now = bench.orchestrator.reload(twin.attempt)
        assert (now.poll_count, now.worker_id) == (2, "twin")

    def test_a_worker_that_polls_its_own_task_again_holds_the_second_delivery_only(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        before = take(bench, first)
        bench.requeue(before)
        after = take(bench, first)
        assert after.worker_id == before.worker_id
        assert not bench.orchestrator.heartbeat(before)
        assert bench.orchestrator.heartbeat(after)

    def test_of_two_workers_with_one_task_id_the_first_report_counts(
        self, bench: OrchestratorBench
    ) -> None:
        first, second, place = step("first"), step("second"), workspace()
        bench.start(first, second, workspace=place)
        one = take(bench, first, worker_id="one")
        bench.requeue(one)
        twin = take(bench, first, worker_id="twin")

        won = bench.orchestrator.report(twin, moved(place, "commit-twin"))
        lost = bench.orchestrator.report(one, moved(place, "commit-one"))

        assert won.accepted
        assert not lost.accepted
        following = take(bench, second)
        assert following.input["workspace"] == place.moved_to("commit-twin").model_dump()

    # --- give back ---------------------------------------------------------------------------

    def test_a_task_given_back_reaches_another_worker_and_costs_no_retry(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first", retries=0)
        run_id = bench.start(first, workspace=workspace())
        one = take(bench, first, worker_id="one")
        assert bench.orchestrator.give_back(one)

        other = take(bench, first, worker_id="other")

        assert other.attempt == one.attempt
        assert bench.orchestrator.report(other, completed()).accepted
        assert bench.run_status(run_id) is RunStatus.COMPLETED

    def test_a_task_that_was_delivered_again_is_not_the_first_holders_to_give_back(
        self, bench: OrchestratorBench
    ) -> None:
        one, twin = delivered_twice(bench)
        assert not bench.orchestrator.give_back(one)
        assert bench.orchestrator.poll([one.attempt.task_name], worker_id="w") == []
        assert bench.orchestrator.heartbeat(twin)

    def test_an_attempt_that_ended_is_not_to_be_given_back(self, bench: OrchestratorBench) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        done = take(bench, first)
        bench.orchestrator.report(done, completed())
        bench.start(first, workspace=workspace())
        zombie = take(bench, first)
        bench.advance(LEASE + 1)

        assert not bench.orchestrator.give_back(done)
        assert not bench.orchestrator.give_back(zombie)
        bench.advance(RETRY_DELAY + 1)
        assert take(bench, first).attempt.retry_count == 1
