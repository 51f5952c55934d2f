"""Keeping the lease of an attempt in hand, and speaking for one whose executor died.

Nothing here runs task code, so that a busy or broken task can't starve a heartbeat. Whether an
attempt still counts is the orchestrator's word alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import UnknownAttemptError
from perago.model.attempt import TaskStatus, is_superseded
from perago.worker.messages import LeaseRenewed

if TYPE_CHECKING:
    from perago.model.attempt import Delivery
    from perago.model.outcome import ReportReceipt, TaskReport
    from perago.ports.orchestrator import Orchestrator


LEAST_SECONDS = 1.0
"""Between two times that the orchestrator is asked about one lease."""


@dataclass(slots=True)
class KeptLease:
    """A lease to keep, looked at every ``look_seconds``. Times are monotonic."""

    delivery: Delivery
    heartbeat_seconds: float
    look_seconds: float
    renewed_at: float
    looked_at: float

    @property
    def due_at(self) -> float:
        """When it wants to be tended again: not at once, if that was just tried without success."""
        due = min(self.renewed_at + self.heartbeat_seconds, self.looked_at + self.look_seconds)
        return max(due, self.looked_at + LEAST_SECONDS)


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The orchestrator doesn't count on this delivery any more.

    If it was ``delivered_again``, or is about to be, the attempt itself goes on with somebody else.
    """

    delivery_id: str
    status: TaskStatus | None
    why: str
    delivered_again: bool = False


def tend(
    orchestrator: Orchestrator, held: KeptLease, now: float
) -> LeaseRenewed | LeaseLost | None:
    """Extend the lease or look at the attempt's standing, whichever is due.

    An orchestrator that doesn't answer is asked again when the next look is due: the lease isn't
    lost before it says so. Raises OrchestratorError.
    """
    held.looked_at = now
    delivery = held.delivery
    is_due = now - held.renewed_at >= held.heartbeat_seconds
    try:
        if is_due and orchestrator.heartbeat(delivery):
            held.renewed_at = now
            return LeaseRenewed(delivery.id, now)
        standing = orchestrator.reload(delivery.attempt)
    except UnknownAttemptError:
        return LeaseLost(delivery.id, None, "the orchestrator doesn't know it any more")
    if is_superseded(delivery, standing):
        why = f"it was delivered again, to {standing.worker_id}"
        if standing.status is TaskStatus.SCHEDULED:
            why = "it was put back into its queue, to be delivered again"
        return LeaseLost(delivery.id, standing.status, why, delivered_again=True)
    if standing.status is not TaskStatus.IN_PROGRESS:
        return LeaseLost(delivery.id, standing.status, f"it is {standing.status}")
    return None


def speak_for_the_dead(
    orchestrator: Orchestrator, delivery: Delivery, report: TaskReport
) -> ReportReceipt | None:
    """Report an attempt whose executor died; None if somebody else speaks for it now.

    Raises OrchestratorUnavailableError: then it is still to be done.
    """
    try:
        if is_superseded(delivery, orchestrator.reload(delivery.attempt)):
            return None
        return orchestrator.report(delivery, report)
    except UnknownAttemptError:
        return None
