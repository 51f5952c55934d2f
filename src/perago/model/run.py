"""A pipeline run: its plan, and what the orchestrator records of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from perago.errors import RunError
from perago.model.attempt import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.model.attempt import Attempt
    from perago.model.controls import TaskControls
    from perago.model.workspace import WorkspaceRef


class RunStatus(StrEnum):
    """Conductor's workflow states."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    TERMINATED = "TERMINATED"

    @property
    def is_active(self) -> bool:
        """Whether it still owns its branch: no other run may write there."""
        return self in (RunStatus.RUNNING, RunStatus.PAUSED)


@dataclass(frozen=True, slots=True)
class ResultField:
    """A params value that is filled in from the result of an earlier step."""

    reference: str
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of a serial chain. ``params`` holds JSON values and :class:`ResultField`s."""

    reference: str
    task_name: str
    module: str
    uses_workspace: bool
    params: Mapping[str, object]
    controls: TaskControls


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A pipeline as the orchestrator needs it. ``target`` is ``module:attribute``."""

    name: str
    target: str
    steps: tuple[StepPlan, ...]


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One attempt as the orchestrator records it."""

    attempt: Attempt
    status: TaskStatus
    scheduled_at: float
    due_at: float
    started_at: float | None = None
    ended_at: float | None = None
    worker_id: str | None = None
    poll_count: int = 0
    reason: str | None = None
    input: Mapping[str, object] = field(default_factory=dict)
    output: Mapping[str, object] = field(default_factory=dict)

    @property
    def output_ref(self) -> str | None:
        """The commit of the workspace in its output; None if it has none."""
        workspace = self.output.get("workspace")
        ref = workspace.get("ref") if isinstance(workspace, dict) else None
        return ref if isinstance(ref, str) else None


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run as the orchestrator records it."""

    id: str
    plan: RunPlan
    status: RunStatus
    created_at: float
    updated_at: float
    workspace: WorkspaceRef | None = None
    reason: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()

    @property
    def output_ref(self) -> str | None:
        """The commit after the last accepted step."""
        ref = self.workspace.ref if self.workspace else None
        for record in self.attempts:
            if record.status is TaskStatus.COMPLETED:
                ref = record.output_ref or ref
        return ref


def assert_runnable(plan: RunPlan, workspace: WorkspaceRef | None) -> None:
    """Raises RunError for a plan without steps, or one that needs a workspace and has none."""
    if not plan.steps:
        raise RunError(f"pipeline {plan.name!r} has no steps", fix="give it at least one task")
    homeless = [step.reference for step in plan.steps if step.uses_workspace]
    if workspace is None and homeless:
        raise RunError(
            f"step {homeless[0]!r} of pipeline {plan.name!r} needs a workspace, and none is given",
            fix="give the repository and branch that the run works on",
        )


def assert_active(run: RunRecord, change: str) -> None:
    """Raises RunError if the run has ended: then it can't be ``change`` ("paused", "cancelled")."""
    if not run.status.is_active:
        raise RunError(
            f"run {run.id} is {run.status} and can't be {change}",
            fix="only a RUNNING or PAUSED run can; `perago runs` shows them",
        )


def resolve_params(
    step: StepPlan, results: Mapping[str, Mapping[str, object]]
) -> dict[str, object]:
    """A step's params with every result field filled in from the results of completed steps."""
    return {name: _resolve(value, results) for name, value in step.params.items()}


def _resolve(value: object, results: Mapping[str, Mapping[str, object]]) -> object:
    if not isinstance(value, ResultField):
        return value
    found: object = results[value.reference]
    for name in value.path:
        found = found[name] if isinstance(found, dict) else None
    return found
