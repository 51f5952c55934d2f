"""Pipeline runs, seen from whoever starts, watches or cancels them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perago.ports.orchestrator import Orchestrator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.model.run import RunPlan, RunRecord
    from perago.model.workspace import WorkspaceRef


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
