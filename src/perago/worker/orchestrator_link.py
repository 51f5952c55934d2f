"""The supervisor's link to the orchestrator: poll, keep leases, report for dead executors.

:class:`InlineLink` makes the requests in the supervisor's own process, for the embedded queue;
:class:`perago.worker.poller_handle.PollerHandle` has a poller process make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from perago.errors import OrchestratorUnavailableError, UnknownAttemptError
from perago.model.attempt import TaskStatus, is_superseded
from perago.worker.events import OrchestratorReachable, OrchestratorUnreachable
from perago.worker.messages import HeartbeatsStopped, LeaseRenewed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from perago.model.attempt import Delivery
    from perago.model.outcome import ReportReceipt, TaskReport
    from perago.ports.environment import Clock
    from perago.ports.orchestrator import Orchestrator


class Delivered(NamedTuple):
    """An attempt for one of the free slots. Its lease can't have begun before ``polled_at``."""

    delivery: Delivery
    polled_at: float


@dataclass(frozen=True, slots=True)
class QueueEmpty:
    """The queue had less than was asked for, or prefetching was stopped.

    ``dropped`` is how much of the credit for prefetching was dropped.
    """

    dropped: int


@dataclass(frozen=True, slots=True)
class PollingStopped:
    """No poll is in flight, and none will be sent. All deliveries came before this event."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """This delivery is no longer the current one, by the orchestrator's answer.

    ``status`` is the task's; None if the orchestrator doesn't know the task. With
    ``delivered_again``, another delivery of the same task has taken over, or is about to.
    """

    delivery_id: str
    status: TaskStatus | None
    why: str
    delivered_again: bool = False


@dataclass(frozen=True, slots=True)
class DeathReported:
    """A dead executor's attempt was reported; no receipt if another delivery reports it."""

    delivery_id: str
    receipt: ReportReceipt | None


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The orchestrator delivers the attempt to another worker; or it was no longer ours."""

    delivery_id: str
    accepted: bool


LinkEvent: TypeAlias = (
    Delivered
    | QueueEmpty
    | PollingStopped
    | LeaseRenewed
    | LeaseLost
    | HeartbeatsStopped
    | DeathReported
    | GivenBack
    | OrchestratorReachable
    | OrchestratorUnreachable
)


class OrchestratorLink(Protocol):
    @property
    def connections(self) -> Sequence[Connection]:
        """What to wait on until there may be events; none if there may be some at any time."""
        ...

    def set_tasks(self, task_names: Sequence[str]) -> None:
        """Poll for these tasks from now on."""
        ...

    def add_credit(self, slots: int, ahead: int = 0) -> None:
        """Poll for so many more attempts; each one delivered uses up one.

        Credit ``ahead`` is for attempts that are in the queue already. When the queue is empty it
        is dropped, and :class:`QueueEmpty` says so.
        """
        ...

    def drop_prefetch(self) -> None:
        """Drop the credit to work ahead; answered by :class:`QueueEmpty`."""
        ...

    def keep_lease(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        """Send heartbeats for this delivery until it is released."""
        ...

    def release_lease(self, delivery_id: str, *, confirm: bool = False) -> None:
        """Send no more heartbeats; with ``confirm``, answered by :class:`HeartbeatsStopped`."""
        ...

    def report_death(self, delivery: Delivery, report: TaskReport) -> None:
        """Report an attempt whose executor died, again and again until that is answered."""
        ...

    def give_back(self, delivery: Delivery) -> None:
        """Have another worker run it."""
        ...

    def stop_polling(self) -> None:
        """Take no more work; answered by :class:`PollingStopped`. Leases are still kept."""
        ...

    def events(self) -> list[LinkEvent]:
        """What happened since, without waiting long. Never raises for the orchestrator."""
        ...

    def close(self) -> None: ...


CHECK_SECONDS = 1.0
"""How often an :class:`InlineLink` asks for an attempt's status, to stop a canceled one soon."""


class InlineLink:
    """Makes the requests in the supervisor's process: for an orchestrator that answers at once."""

    def __init__(self, orchestrator: Orchestrator, clock: Clock, *, worker_id: str) -> None:
        self._orchestrator = orchestrator
        self._clock = clock
        self._worker_id = worker_id
        self._task_names: Sequence[str] = ()
        self._slots = 0
        self._leases: dict[str, KeptLease] = {}
        self._death_reports: dict[str, tuple[Delivery, TaskReport]] = {}
        self._done: list[LinkEvent] = []

    @property
    def connections(self) -> Sequence[Connection]:
        return ()

    def set_tasks(self, task_names: Sequence[str]) -> None:
        self._task_names = task_names

    def add_credit(self, slots: int, ahead: int = 0) -> None:
        self._slots += slots
        if ahead:  # polling is cheap here, so nothing is prefetched
            self._done.append(QueueEmpty(ahead))

    def drop_prefetch(self) -> None: ...

    def keep_lease(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        self._leases[delivery.id] = KeptLease(
            delivery, heartbeat_seconds, CHECK_SECONDS, renewed_at=leased_at, checked_at=leased_at
        )

    def release_lease(self, delivery_id: str, *, confirm: bool = False) -> None:
        self._leases.pop(delivery_id, None)
        if confirm:
            self._done.append(HeartbeatsStopped(delivery_id))

    def report_death(self, delivery: Delivery, report: TaskReport) -> None:
        self._death_reports[delivery.id] = (delivery, report)

    def give_back(self, delivery: Delivery) -> None:
        accepted = self._orchestrator.give_back(delivery)
        self._done.append(GivenBack(delivery.id, accepted))

    def stop_polling(self) -> None:
        self._task_names = ()
        self._done.append(PollingStopped())

    def events(self) -> list[LinkEvent]:
        events, self._done = self._done, []
        try:
            self._poll(events)
            self._renew_leases(events)
            self._report_deaths(events)
        except OrchestratorUnavailableError as error:  # tried again at the next call
            events.append(OrchestratorUnreachable(error))
        return events

    def close(self) -> None: ...

    def _poll(self, events: list[LinkEvent]) -> None:
        if not self._slots or not self._task_names:
            return
        polled_at = self._clock.monotonic()
        for delivery in self._orchestrator.poll(
            self._task_names, worker_id=self._worker_id, limit=self._slots
        ):
            self._slots -= 1
            events.append(Delivered(delivery, polled_at))

    def _renew_leases(self, events: list[LinkEvent]) -> None:
        for lease in list(self._leases.values()):
            now = self._clock.monotonic()
            if now >= lease.due_at and (event := renew_or_check(self._orchestrator, lease, now)):
                events.append(event)

    def _report_deaths(self, events: list[LinkEvent]) -> None:
        for delivery_id, (delivery, report) in list(self._death_reports.items()):
            receipt = report_for_dead_executor(self._orchestrator, delivery, report)
            del self._death_reports[delivery_id]
            events.append(DeathReported(delivery_id, receipt))


# --- keeping a lease ------------------------------------------------------------------------------

LEAST_SECONDS = 1.0
"""Between two requests about one lease."""


@dataclass(slots=True)
class KeptLease:
    """A lease to renew; its attempt's status is checked in between. Times are monotonic."""

    delivery: Delivery
    heartbeat_seconds: float
    check_seconds: float
    renewed_at: float
    checked_at: float

    @property
    def due_at(self) -> float:
        """When the next request is due; not at once if one has just failed."""
        due = min(self.renewed_at + self.heartbeat_seconds, self.checked_at + self.check_seconds)
        return max(due, self.checked_at + LEAST_SECONDS)


def renew_or_check(
    orchestrator: Orchestrator, lease: KeptLease, now: float
) -> LeaseRenewed | LeaseLost | None:
    """Send a heartbeat or ask for the attempt's status, whichever is due.

    An orchestrator that doesn't answer is asked again when the next check is due: only its answer
    makes a lease lost. Raises OrchestratorError.
    """
    lease.checked_at = now
    delivery = lease.delivery
    is_due = now - lease.renewed_at >= lease.heartbeat_seconds
    try:
        if is_due and orchestrator.heartbeat(delivery):
            lease.renewed_at = now
            return LeaseRenewed(delivery.id, now)
        snapshot = orchestrator.reload(delivery.attempt)
    except UnknownAttemptError:
        return LeaseLost(delivery.id, None, "the orchestrator doesn't know it any more")
    if is_superseded(delivery, snapshot):
        why = f"it was delivered again, to {snapshot.worker_id}"
        if snapshot.status is TaskStatus.SCHEDULED:
            why = "it was put back into its queue, to be delivered again"
        return LeaseLost(delivery.id, snapshot.status, why, delivered_again=True)
    if snapshot.status is not TaskStatus.IN_PROGRESS:
        return LeaseLost(delivery.id, snapshot.status, f"it is {snapshot.status}")
    return None


def report_for_dead_executor(
    orchestrator: Orchestrator, delivery: Delivery, report: TaskReport
) -> ReportReceipt | None:
    """Report an attempt whose executor died; None if another delivery owns the result.

    Raises OrchestratorUnavailableError: then try again.
    """
    try:
        if is_superseded(delivery, orchestrator.reload(delivery.attempt)):
            return None
        return orchestrator.report(delivery, report)
    except UnknownAttemptError:
        return None


# --- how much to poll for -------------------------------------------------------------------------

AHEAD_SECONDS = 0.25
"""What is prefetched is done in about that time, if attempts stay as short as they were."""
MOST_AHEAD = 4
"""The most that is prefetched for each slot."""
_UNKNOWN_SECONDS = 1.0
_WEIGHT_OF_NEWEST = 0.25


class Prefetch:
    """How many attempts to poll for: one for each free slot, and some ahead if they are short."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._outstanding = 0
        self._is_empty = True
        self._mean_seconds = _UNKNOWN_SECONDS

    def used(self) -> None:
        """An attempt was delivered."""
        self._outstanding = max(0, self._outstanding - 1)
        self._is_empty = False

    def ran_dry(self, dropped: int) -> None:
        """The queue had less than was asked for; so much credit was dropped."""
        self._outstanding = max(0, self._outstanding - dropped)
        self._is_empty = True

    def took(self, seconds: float) -> None:
        """An attempt took so long. A long one counts at once, short ones gradually."""
        weight = 1.0 if seconds > self._mean_seconds else _WEIGHT_OF_NEWEST
        self._mean_seconds += weight * (seconds - self._mean_seconds)

    def due(self, *, free: int, waiting: int) -> tuple[int, int]:
        """Use up and return the credit to add now: for free slots, and ahead of busy ones."""
        wanted, target = free - waiting, self._ahead()
        for_slots = max(0, wanted - self._outstanding)
        ahead = wanted + target - self._outstanding - for_slots
        if ahead < max(1, target // 2):  # one poll for several costs less
            ahead = 0
        self._outstanding += for_slots + ahead
        return for_slots, ahead

    def _ahead(self) -> int:
        if self._is_empty:
            return 0
        done = self._slots * AHEAD_SECONDS / max(self._mean_seconds, 1e-3)
        return min(int(done), MOST_AHEAD * self._slots)
