"""The queue that decides which attempt runs and which one succeeded.

A worker needs an :class:`Orchestrator`; whatever starts, watches or cancels runs needs
:class:`Runs`; registering tasks and workflows needs :class:`Definitions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.model.attempt import Attempt, AttemptSnapshot, Delivery
    from perago.model.outcome import ReportReceipt, TaskReport
    from perago.model.run import RunPlan, RunRecord
    from perago.model.workspace import WorkspaceRef


class Orchestrator(Protocol):
    """What a worker asks of the queue. Reads and heartbeats may be repeated.

    A method raises OrchestratorUnavailableError if the queue didn't answer, and
    OrchestratorRefusedError if it refused and changed nothing.
    """

    def poll(self, task_names: Sequence[str], *, worker_id: str, limit: int = 1) -> list[Delivery]:
        """Take up to ``limit`` scheduled tasks; each becomes IN_PROGRESS with a fresh lease."""
        ...

    def reload(self, attempt: Attempt) -> AttemptSnapshot:
        """The attempt's present state. Raises UnknownAttemptError, OrchestratorUnavailableError."""
        ...

    def accepted_ref(self, task_id: str) -> str | None:
        """The workspace ref in the accepted output of a completed task.

        None if the task isn't completed, has no workspace, or isn't known.
        """
        ...

    def heartbeat(self, delivery: Delivery) -> bool:
        """Extend the lease; False if the attempt isn't in progress, or was delivered again."""
        ...

    def report(self, delivery: Delivery, report: TaskReport) -> ReportReceipt:
        """Report the attempt's end and read back what became of it.

        A report for an attempt that timed out meanwhile is ignored, without an error: only what is
        ``accepted`` has happened.
        """
        ...

    def give_back(self, delivery: Delivery) -> bool:
        """Put an unfinished attempt back into the queue, without costing it a retry.

        Only for an execution that is certainly over and hasn't begun to publish. False if the
        attempt was delivered again or has ended.
        """
        ...

    def writers(
        self, repository: str, branch: str, *, asking: str | None = None, seconds_old: float = 0.0
    ) -> Sequence[str]:
        """The active runs that write this branch; more than one is a mistake of the operators.

        The answer may be up to ``seconds_old``, if that is cheaper. The run ``asking`` is known to
        be active.
        """
        ...


class Runs(Orchestrator, Protocol):
    """Pipeline runs: start, find, pause, resume, cancel.

    A method that takes a run's id raises RunNotFoundError if there is no such run.
    """

    def start(
        self, plan: RunPlan, workspace: WorkspaceRef | None, *, run_id: str | None = None
    ) -> str:
        """Schedule the first step and return the run's id, which may be given as ``run_id``.

        Raises BranchBusyError if another active run writes that branch.
        """
        ...

    def get(self, run_id: str) -> RunRecord:
        """The run with exactly this id."""
        ...

    def find(self, prefix: str) -> RunRecord:
        """The one run whose id starts with ``prefix``.

        Raises RunNotFoundError if there are none or several, and names them.
        """
        ...

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """The last runs, newest first."""
        ...

    def active_on(self, repository: str, branch: str) -> RunRecord | None:
        """The run that writes this branch now, RUNNING or PAUSED; None if there is none."""
        ...

    def last_on(self, repository: str, branch: str) -> RunRecord | None:
        """The newest run on this branch, whatever its status; None if there is none."""
        ...

    def resumable(self, target: str | None) -> RunRecord | None:
        """The newest run that can be resumed, of the plan with that target or name, or of any.

        RUNNING, PAUSED, FAILED or TIMED_OUT; and no other run has had a result accepted on its
        branch since it began.
        """
        ...

    def pause(self, run_id: str, reason: str) -> None:
        """Schedule no further step until it is resumed. Raises RunError if it has ended."""
        ...

    def cancel(self, run_id: str, reason: str) -> None:
        """End it for good; its attempt becomes stale. Raises RunError if it has ended."""
        ...

    def resume(self, run_id: str) -> None:
        """Continue after the last accepted step, with a new attempt.

        Raises RunError if it can't be resumed. One reason: another run has had a result accepted on
        its branch since it began, and this run would take that for an abandoned commit.
        """
        ...

    def next_due(self, run_id: str) -> float | None:
        """When the scheduled attempt can be polled (epoch seconds); None if there is none."""
        ...


@runtime_checkable
class SharedRuns(Runs, Protocol):
    """Runs on a server, whose workers are on other machines."""

    def start_again(self, run_id: str, workspace: WorkspaceRef | None) -> str:
        """Start a copy of that run, but at ``workspace``; return the new id.

        Raises RunNotFoundError, BranchBusyError.
        """
        ...

    def look_again(self, run_id: str) -> None:
        """Make the server check the leases of the run's attempts now, not minutes later."""
        ...

    def last_polls(self, task_names: Sequence[str]) -> Mapping[str, tuple[str, float]]:
        """The worker that last polled each task, and when; without tasks never polled."""
        ...

    def task_logs(self, task_id: str) -> Sequence[tuple[float, str]]:
        """The lines that an attempt's worker sent to the server, each with its time."""
        ...

    def task_ended_at(self, task_id: str) -> float | None:
        """When that attempt ended; None while it runs. Raises UnknownAttemptError."""
        ...


class Definitions(Protocol):
    """The registered definitions of tasks and workflows, as JSON.

    Raises OrchestratorRefusedError, with the server's message, for a definition that it refuses.
    """

    def task(self, name: str) -> Mapping[str, Any] | None:
        """The task's definition; None if there is none."""
        ...

    def workflow(self, name: str, version: int | None = None) -> Mapping[str, Any] | None:
        """The workflow's definition of that version, or its latest; None if there is none."""
        ...

    def push_task(self, definition: Mapping[str, Any]) -> None:
        """Register it, and replace one of that name."""
        ...

    def push_workflow(self, definition: Mapping[str, Any]) -> None:
        """Register it, and replace one of that name and version.

        Running workflows keep the definition that they started with.
        """
        ...
