"""The queue that decides which attempt runs and which one succeeded.

Reads and heartbeats may be repeated. Only what :meth:`Orchestrator.report` returns as ``accepted``
has happened: a report for an attempt that timed out meanwhile is ignored, without an error.
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
    def poll(self, task_names: Sequence[str], *, worker_id: str, limit: int = 1) -> list[Delivery]:
        """Take up to ``limit`` scheduled tasks; each becomes IN_PROGRESS with a fresh lease."""
        ...

    def reload(self, attempt: Attempt) -> AttemptSnapshot:
        """What this attempt is now. Raises UnknownAttemptError, OrchestratorUnavailableError."""
        ...

    def accepted_ref(self, task_id: str) -> str | None:
        """The workspace ref a task was accepted as COMPLETED with.

        None for one that wasn't, that has no workspace, or that isn't known.
        """
        ...

    def heartbeat(self, delivery: Delivery) -> bool:
        """Extend the lease; False if the attempt isn't in progress, or was delivered again."""
        ...

    def report(self, delivery: Delivery, report: TaskReport) -> ReportReceipt:
        """Hand in the attempt's end and read back what became of it."""
        ...

    def give_back(self, delivery: Delivery) -> bool:
        """Have an unfinished attempt delivered to somebody else, without costing it a retry.

        Only for an execution that is certainly over and hasn't begun to publish. False if the
        attempt isn't this delivery's any more.
        """
        ...

    def writers(
        self, repository: str, branch: str, *, asking: str | None = None, seconds_old: float = 0.0
    ) -> Sequence[str]:
        """The active runs that write this branch: one, unless the operators broke their promise.

        The answer may be ``seconds_old``, if that is cheaper. The run that is ``asking`` is known
        to be active.
        """
        ...


# --- Pipeline runs, seen from whoever starts, watches or cancels them ---


class Runs(Orchestrator, Protocol):
    """An orchestrator that can also be told what to run. Run ids may be given by a unique start."""

    def start(
        self, plan: RunPlan, workspace: WorkspaceRef | None, *, run_id: str | None = None
    ) -> str:
        """Schedule the first step. Raises BranchBusyError while another run writes that branch."""
        ...

    def get(self, run_id: str) -> RunRecord:
        """Raises RunNotFoundError."""
        ...

    def find(self, prefix: str) -> RunRecord:
        """The one run whose id starts so. Raises RunNotFoundError, naming the candidates."""
        ...

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """Newest first."""
        ...

    def active_on(self, repository: str, branch: str) -> RunRecord | None:
        """The run that writes this branch now: RUNNING or PAUSED."""
        ...

    def last_on(self, repository: str, branch: str) -> RunRecord | None:
        """The newest run on this branch, however it ended."""
        ...

    def resumable(self, target: str | None) -> RunRecord | None:
        """The newest unfinished run whose plan has that target or name, or of any.

        Unfinished: RUNNING, PAUSED, FAILED or TIMED_OUT, and no other run has had something
        accepted on its branch since it began.
        """
        ...

    def pause(self, run_id: str, reason: str) -> None: ...

    def cancel(self, run_id: str, reason: str) -> None:
        """End it for good; an attempt in progress loses its standing. Raises RunError if ended."""
        ...

    def resume(self, run_id: str) -> None:
        """Go on after the last accepted step, with a new attempt.

        Raises RunError if it can't, also because another run has had something accepted on its
        branch since it began: to this one that would look abandoned.
        """
        ...

    def next_due(self, run_id: str) -> float | None:
        """When a scheduled attempt may be polled; None if none is scheduled."""
        ...


@runtime_checkable
class SharedRuns(Runs, Protocol):
    """Runs whose workers are elsewhere, and what can be found out about those from here."""

    def start_again(self, run_id: str, workspace: WorkspaceRef | None) -> str:
        """Start one as that one was, whoever did, but at ``workspace``; its id.

        Raises RunNotFoundError, BranchBusyError.
        """
        ...

    def look_again(self, run_id: str) -> None:
        """Have it noticed now, and not minutes later, if the lease of an attempt has run out."""
        ...

    def last_polls(self, task_names: Sequence[str]) -> Mapping[str, tuple[str, float]]:
        """Who asked for each task last, and when; without those that nobody ever asked for."""
        ...

    def task_logs(self, task_id: str) -> Sequence[tuple[float, str]]:
        """What an attempt's worker had to say, each line with its time."""
        ...

    def task_ended_at(self, task_id: str) -> float | None:
        """When that attempt ended; None while it hasn't. Raises UnknownAttemptError."""
        ...


# --- What an orchestrator has registered of tasks and workflows, as the JSON it exchanges ---


class Definitions(Protocol):
    """Raises OrchestratorRefusedError, with the server's words, for what it won't have."""

    def task(self, name: str) -> Mapping[str, Any] | None:
        """The task's definition; None if there is none."""
        ...

    def workflow(self, name: str, version: int | None = None) -> Mapping[str, Any] | None:
        """The workflow's definition of that version, or its latest; None if there is none."""
        ...

    def push_task(self, definition: Mapping[str, Any]) -> None:
        """Register it, in place of the one of that name."""
        ...

    def push_workflow(self, definition: Mapping[str, Any]) -> None:
        """Register it, in place of the one of that name and version.

        Workflows that were started before go on as they began.
        """
        ...
