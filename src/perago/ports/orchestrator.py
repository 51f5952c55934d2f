"""The queue that decides which attempt runs and which one succeeded.

Reads and heartbeats may be repeated. Only what :meth:`Orchestrator.report` returns as ``accepted``
has happened: a report for an attempt that timed out meanwhile is ignored, without an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.model.attempt import Attempt, AttemptSnapshot, Delivery
    from perago.model.outcome import ReportReceipt, TaskReport


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
