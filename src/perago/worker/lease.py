"""Keeping the lease of an attempt in hand, and speaking for one whose executor died.

Nothing here runs task code, so that a busy or broken task can't starve a heartbeat. Whether an
attempt still counts is the orchestrator's word alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import UnknownAttemptError
from perago.model.attempt import TaskStatus, is_superseded

if TYPE_CHECKING:
    from perago.model.attempt import Delivery
    from perago.model.outcome import ReportReceipt, TaskReport
    from perago.ports.orchestrator import Orchestrator

GIVEN_UP = frozenset({TaskStatus.TIMED_OUT, TaskStatus.CANCELED})
"""What only the orchestrator ends an attempt with; any other end was its own worker's report."""


@dataclass(slots=True)
class Held:
    """A lease to keep, looked at every ``look_seconds``. Times are monotonic."""

    delivery: Delivery
    heartbeat_seconds: float
    look_seconds: float
    renewed_at: float
    looked_at: float

    @property
    def due_at(self) -> float:
        """When it wants to be tended again."""
        return min(self.renewed_at + self.heartbeat_seconds, self.looked_at + self.look_seconds)


@dataclass(frozen=True, slots=True)
class Renewed:
    """A heartbeat that was sent at ``at`` was accepted."""

    task_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """The orchestrator doesn't count on this delivery any more.

    If it was ``delivered_again``, the attempt itself goes on with somebody else.
    """

    task_id: str
    why: str
    delivered_again: bool = False


def tend(orchestrator: Orchestrator, held: Held, now: float) -> Renewed | Lost | None:
    """Extend the lease or look at the attempt's standing, whichever is due.

    An orchestrator that doesn't answer is asked again when the next look is due: the lease isn't
    lost before it says so. Raises OrchestratorError.
    """
    held.looked_at = now
    if now - held.renewed_at >= held.heartbeat_seconds and orchestrator.heartbeat(held.delivery):
        held.renewed_at = now
        return Renewed(held.delivery.attempt.task_id, now)
    return _standing(orchestrator, held.delivery)


def _standing(orchestrator: Orchestrator, delivery: Delivery) -> Lost | None:
    task_id = delivery.attempt.task_id
    try:
        now = orchestrator.reload(delivery.attempt)
    except UnknownAttemptError:
        return Lost(task_id, "the orchestrator doesn't know it any more")
    if now.status in GIVEN_UP:
        return Lost(task_id, f"it is {now.status}")
    if now.status is TaskStatus.IN_PROGRESS and is_superseded(delivery, now):
        return Lost(task_id, f"it was delivered again, to {now.worker_id}", delivered_again=True)
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
