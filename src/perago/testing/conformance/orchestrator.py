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
from typing import TYPE_CHECKING, Protocol

import pytest

from perago.errors import UnknownAttemptError
from perago.model.attempt import TaskStatus
from perago.model.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.model.outcome import TaskReport
from perago.model.run import ResultField, RunStatus, StepPlan
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.model.attempt import Attempt, Delivery
    from perago.ports.orchestrator import Orchestrator

LEASE = 4
RETRY_DELAY = 2


class OrchestratorBench(Protocol):
    """What the suite needs besides the port: somebody who starts runs, and time."""

    @property
    def orchestrator(self) -> Orchestrator:
        """The adapter under test."""
        ...

    def start(self, *steps: StepPlan, workspace: WorkspaceRef | None) -> str:
        """Start a run of these steps, one after the other, and return its id."""
        ...

    def run_status(self, run_id: str) -> RunStatus:
        """What the orchestrator says of the run now."""
        ...

    def requeue(self, attempt: Attempt) -> None:
        """Have the attempt delivered once more while its first worker still holds it."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass, and the orchestrator act on it."""
        ...


def step(
    reference: str,
    *,
    params: Mapping[str, object] | None = None,
    uses_workspace: bool = True,
    retries: int = 1,
    response_seconds: int = LEASE,
) -> StepPlan:
    """A step of a task nobody else polls for."""
    return StepPlan(
        reference=reference,
        task_name=f"conformance.{reference}.{uuid.uuid4().hex[:12]}",
        module="conformance",
        uses_workspace=uses_workspace,
        params=params or {},
        controls=TaskControls(
            retry=RetryPolicy(count=retries, delay_seconds=RETRY_DELAY),
            timeout=TimeoutPolicy(response_seconds=response_seconds),
        ),
    )


def workspace(ref: str = "commit-a") -> WorkspaceRef:
    """A workspace on a branch of its own, as no two active runs share one."""
    branch = f"conformance-{uuid.uuid4().hex[:12]}"
    return WorkspaceRef(repository="songs", branch=branch, ref_type="commit", ref=ref)


def completed(output: Mapping[str, object] | None = None) -> TaskReport:
    """A report of success."""
    return TaskReport(TaskStatus.COMPLETED, output or {"result": {}})


def failed(reason: str = "no luck") -> TaskReport:
    """A report of a failure that a retry may mend."""
    return TaskReport(TaskStatus.FAILED, reason=reason)


class OrchestratorConformance:
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
        assert delivery.worker_id == "worker-1"
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
        for _ in range(3):
            bench.advance(LEASE - 1)
            assert bench.orchestrator.heartbeat(delivery.attempt, worker_id=delivery.worker_id)
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
        assert not bench.orchestrator.heartbeat(zombie.attempt, worker_id=zombie.worker_id)
        assert status_of(bench, zombie) is TaskStatus.TIMED_OUT

    def test_a_report_after_the_time_out_is_ignored_without_an_error(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        zombie = take(bench, first)
        bench.advance(LEASE + 1)

        receipt = bench.orchestrator.report(zombie.attempt, completed())

        assert (receipt.accepted, receipt.status) == (False, TaskStatus.TIMED_OUT)
        assert bench.run_status(run_id) is RunStatus.RUNNING
        bench.advance(RETRY_DELAY + 1)
        assert bench.orchestrator.report(take(bench, first).attempt, completed()).accepted
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
        assert delivery.response_seconds == 0
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
        assert bench.orchestrator.accepted_ref("nobody's") is None
        bench.orchestrator.report(one.attempt, moved(workspace(), "C"))
        assert bench.orchestrator.accepted_ref(task_id) == "C"

    def test_an_accepted_completion_is_final(self, bench: OrchestratorBench) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        receipt = bench.orchestrator.report(delivery.attempt, completed())
        assert (receipt.accepted, receipt.status) == (True, TaskStatus.COMPLETED)
        assert status_of(bench, delivery) is TaskStatus.COMPLETED
        assert bench.run_status(run_id) is RunStatus.COMPLETED
        assert not bench.orchestrator.heartbeat(delivery.attempt, worker_id=delivery.worker_id)

    def test_repeating_an_accepted_report_is_accepted_and_changes_nothing(
        self, bench: OrchestratorBench
    ) -> None:
        first, second = step("first"), step("second")
        bench.start(first, second, workspace=workspace())
        attempt = take(bench, first).attempt
        assert bench.orchestrator.report(attempt, completed()).accepted
        assert bench.orchestrator.report(attempt, completed()).accepted
        assert len(bench.orchestrator.poll([second.task_name], worker_id="w", limit=5)) == 1

    def test_another_report_after_the_accepted_one_is_ignored(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        attempt = take(bench, first).attempt
        bench.orchestrator.report(attempt, completed())
        receipt = bench.orchestrator.report(attempt, failed())
        assert (receipt.accepted, receipt.status) == (False, TaskStatus.COMPLETED)
        assert bench.run_status(run_id) is RunStatus.COMPLETED

    def test_a_failure_is_retried_after_its_delay_under_a_new_task_id(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        run_id = bench.start(first, workspace=workspace())
        before = take(bench, first)
        receipt = bench.orchestrator.report(before.attempt, failed())
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
        bench.orchestrator.report(take(bench, first).attempt, failed())
        bench.advance(RETRY_DELAY + 1)
        bench.orchestrator.report(take(bench, first).attempt, failed())
        assert bench.run_status(run_id) is RunStatus.FAILED
        bench.advance(RETRY_DELAY + 1)
        assert bench.orchestrator.poll([first.task_name], worker_id="w") == []

    def test_a_terminal_error_fails_the_run_at_once(self, bench: OrchestratorBench) -> None:
        first = step("first", retries=3)
        run_id = bench.start(first, workspace=workspace())
        delivery = take(bench, first)
        terminal = TaskReport(TaskStatus.FAILED_WITH_TERMINAL_ERROR, reason="wrong input")
        receipt = bench.orchestrator.report(delivery.attempt, terminal)
        assert (receipt.accepted, receipt.status) == (True, terminal.status)
        assert bench.run_status(run_id) is RunStatus.FAILED
        bench.advance(RETRY_DELAY + 1)
        assert bench.orchestrator.poll([first.task_name], worker_id="w") == []

    # --- two workers with one task id --------------------------------------------------------

    def test_a_requeued_task_reaches_a_second_worker_under_the_same_id(
        self, bench: OrchestratorBench
    ) -> None:
        first = step("first")
        bench.start(first, workspace=workspace())
        one = take(bench, first, worker_id="one")
        bench.requeue(one.attempt)
        twin = take(bench, first, worker_id="twin")
        assert twin.attempt == one.attempt
        assert twin.input == one.input
        assert twin.worker_id == "twin"

    def test_of_two_workers_with_one_task_id_the_first_report_counts(
        self, bench: OrchestratorBench
    ) -> None:
        first, second, place = step("first"), step("second"), workspace()
        bench.start(first, second, workspace=place)
        one = take(bench, first, worker_id="one")
        bench.requeue(one.attempt)
        twin = take(bench, first, worker_id="twin")

        won = bench.orchestrator.report(twin.attempt, moved(place, "commit-twin"))
        lost = bench.orchestrator.report(one.attempt, moved(place, "commit-one"))

        assert won.accepted
        assert not lost.accepted
        following = take(bench, second)
        assert following.input["workspace"] == place.moved_to("commit-twin").model_dump()

    # --- the chain ---------------------------------------------------------------------------

    def test_a_step_is_not_handed_out_before_the_one_before_it_completed(
        self, bench: OrchestratorBench
    ) -> None:
        first, second = step("first"), step("second")
        bench.start(first, second, workspace=workspace())
        assert bench.orchestrator.poll([second.task_name], worker_id="w") == []
        delivery = take(bench, first)
        assert bench.orchestrator.poll([second.task_name], worker_id="w") == []
        bench.orchestrator.report(delivery.attempt, completed())
        assert take(bench, second).attempt.reference_task_name == "second"

    def test_results_and_refs_flow_into_later_steps(self, bench: OrchestratorBench) -> None:
        place = workspace("commit-a")
        ingest = step("ingest")
        count = step(
            "count", uses_workspace=False, params={"of": ResultField("ingest", ("songs",))}
        )
        rank = step("rank", params={"top": ResultField("count", ("best", "n")), "by": "plays"})
        run_id = bench.start(ingest, count, rank, workspace=place)

        bench.orchestrator.report(
            take(bench, ingest).attempt, moved(place, "commit-b", {"songs": 12})
        )
        counted = take(bench, count)
        assert counted.input == {"params": {"of": 12}}
        bench.orchestrator.report(counted.attempt, completed({"result": {"best": {"n": 3}}}))
        ranked = take(bench, rank)
        assert ranked.input == {
            "workspace": place.moved_to("commit-b").model_dump(),
            "params": {"top": 3, "by": "plays"},
        }
        bench.orchestrator.report(ranked.attempt, moved(place, "commit-c"))
        assert bench.run_status(run_id) is RunStatus.COMPLETED


def take(bench: OrchestratorBench, wanted: StepPlan, *, worker_id: str = "worker") -> Delivery:
    """Poll for exactly one task of that step."""
    deliveries = bench.orchestrator.poll([wanted.task_name], worker_id=worker_id, limit=5)
    assert len(deliveries) == 1, f"expected one delivery of {wanted.reference}, got {deliveries}"
    return deliveries[0]


def status_of(bench: OrchestratorBench, delivery: Delivery) -> TaskStatus:
    """The attempt's status, read back."""
    return bench.orchestrator.reload(delivery.attempt).status


def moved(place: WorkspaceRef, ref: str, result: Mapping[str, object] | None = None) -> TaskReport:
    """A report of success that published ``ref``."""
    return completed({"workspace": place.moved_to(ref).model_dump(), "result": result or {}})
