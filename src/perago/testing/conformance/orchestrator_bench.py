"""What the orchestrator suite needs besides the port: to start runs, let time pass and poll."""
# ruff: noqa: S101 - tests assert

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Protocol

from perago.model.attempt import TaskStatus
from perago.model.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.model.outcome import TaskReport
from perago.model.run import StepPlan
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.model.attempt import Delivery
    from perago.model.run import RunStatus
    from perago.ports.orchestrator import Orchestrator

LEASE = 4
RETRY_DELAY = 2


class OrchestratorBench(Protocol):
    """Starts runs, and lets time pass: the suite's fixture ``bench``."""

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

    def requeue(self, delivery: Delivery) -> None:
        """Have the task handed out once more while the one who holds it still works on it."""
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
    """A step of a new task, which no other test polls for."""
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
    """A report of a failure that is retried."""
    return TaskReport(TaskStatus.FAILED, reason=reason)


def take(bench: OrchestratorBench, wanted: StepPlan, *, worker_id: str = "worker") -> Delivery:
    """Poll for exactly one task of that step."""
    deliveries = bench.orchestrator.poll([wanted.task_name], worker_id=worker_id, limit=5)
    assert len(deliveries) == 1, f"expected one delivery of {wanted.reference}, got {deliveries}"
    return deliveries[0]


def delivered_twice(bench: OrchestratorBench) -> tuple[Delivery, Delivery]:
    """One task in the hands of two workers, "one" first and "twin" after it."""
    shared = step("shared")
    bench.start(shared, workspace=workspace())
    one = take(bench, shared, worker_id="one")
    bench.requeue(one)
    return one, take(bench, shared, worker_id="twin")


def status_of(bench: OrchestratorBench, delivery: Delivery) -> TaskStatus:
    """The attempt's status, read back."""
    return bench.orchestrator.reload(delivery.attempt).status


def moved(place: WorkspaceRef, ref: str, result: Mapping[str, object] | None = None) -> TaskReport:
    """A report of success that published ``ref``."""
    return completed({"workspace": place.moved_to(ref).model_dump(), "result": result or {}})
