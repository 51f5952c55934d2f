"""The supervisor's way to the orchestrator: what it asks for, and what it is told.

A desk is offered slots, hands out deliveries for them, keeps the leases it is told to hold, reports
for executors that died, and gives back what won't be finished. It may do that right here
(:class:`InlineDesk`), or in a process of its own (:mod:`perago.worker.poller`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perago.errors import OrchestratorUnavailableError
from perago.worker.events import OrchestratorReachable, OrchestratorUnreachable
from perago.worker.heartbeats import KeptLease, LeaseLost, speak_for_the_dead, tend
from perago.worker.messages import HeartbeatsStopped, LeaseRenewed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from perago.model.attempt import Delivery
    from perago.model.outcome import ReportReceipt, TaskReport
    from perago.ports.environment import Clock
    from perago.ports.orchestrator import Orchestrator


# --- How much work to ask for: something for each free slot, and a little ahead while ---
AHEAD_SECONDS = 0.25
"""What is taken ahead is done in about that time, if things go on as they did."""
MOST_AHEAD = 4
"""What is taken ahead at most, for each slot."""
_UNKNOWN_SECONDS = 1.0
_PART_OF_NEWEST = 0.25


class Prefetch:
    """What the desk was offered and hasn't used yet, and what to offer it next."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._outstanding = 0
        self._is_dry = True
        self._pace = _UNKNOWN_SECONDS

    def used(self) -> None:
        """A task was delivered."""
        self._outstanding = max(0, self._outstanding - 1)
        self._is_dry = False

    def ran_dry(self, dropped: int) -> None:
        """There was less to be had than was asked for; so many offers don't stand any more."""
        self._outstanding = max(0, self._outstanding - dropped)
        self._is_dry = True

    def took(self, seconds: float) -> None:
        """An attempt took that long. A long one counts at once, short ones by and by."""
        part = 1.0 if seconds > self._pace else _PART_OF_NEWEST
        self._pace += part * (seconds - self._pace)

    def due(self, *, free: int, waiting: int) -> tuple[int, int]:
        """How much to offer now: for slots that stand free, and ahead of those that are busy."""
        wanted = free - waiting
        for_slots = max(0, wanted - self._outstanding)
        ahead = wanted + self._ahead - self._outstanding - for_slots
        if ahead < max(1, self._ahead // 2):  # rather several at once
            ahead = 0
        self._outstanding += for_slots + ahead
        return for_slots, ahead

    @property
    def _ahead(self) -> int:
        if self._is_dry:
            return 0
        done = self._slots * AHEAD_SECONDS / max(self._pace, 1e-3)
        return min(int(done), MOST_AHEAD * self._slots)


LOOK_SECONDS = 1.0
"""How often an attempt's standing is looked up here, to stop a cancelled one soon."""


class Delivered(NamedTuple):
    """A task for one of the slots on offer. Its lease can't have begun before ``asked_at``."""

    delivery: Delivery
    asked_at: float


@dataclass(frozen=True, slots=True)
class QueueEmpty:
    """There was less to be had than was asked for: so many offers to work ahead were dropped.

    Or they were withdrawn.
    """

    dropped: int


@dataclass(frozen=True, slots=True)
class PollingStopped:
    """No work is being asked for any more; what was delivered has been told before this."""


@dataclass(frozen=True, slots=True)
class DeathReported:
    """A dead executor's attempt was reported; no receipt if somebody else speaks for it now."""

    delivery_id: str
    receipt: ReportReceipt | None


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An attempt is somebody else's to run; or it wasn't ours any more."""

    delivery_id: str
    accepted: bool


LinkEvent = (
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
        """What to wait on until there may be news; none if there may be some at any time."""
        ...

    def serve(self, task_names: Sequence[str]) -> None:
        """Ask for these tasks from now on."""
        ...

    def offer(self, slots: int, ahead: int = 0) -> None:
        """So many more attempts can be taken; each one delivered uses up one of them.

        Those ``ahead`` are for what is there already: they are dropped, and that is told, when
        there is nothing left.
        """
        ...

    def withdraw(self) -> None:
        """Drop the offers to work ahead, and tell."""
        ...

    def hold(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        """Keep this delivery's lease, until it is let go."""
        ...

    def let_go(self, delivery_id: str, *, tell: bool = False) -> None:
        """Renew its lease no more; if asked to, ``tell`` when no heartbeat is under way."""
        ...

    def speak_for(self, delivery: Delivery, report: TaskReport) -> None:
        """Report an attempt whose executor died, until that is answered."""
        ...

    def give_back(self, delivery: Delivery) -> None:
        """Have somebody else run it."""
        ...

    def stop_asking(self) -> None:
        """Take no more work, and tell when that is so; leases are kept on."""
        ...

    def news(self) -> list[LinkEvent]:
        """What happened since, without waiting long. Never raises for the orchestrator."""
        ...

    def close(self) -> None: ...


class InlineLink:
    """A desk in the supervisor's own process, for an orchestrator that answers at once."""

    def __init__(self, orchestrator: Orchestrator, clock: Clock, *, worker_id: str) -> None:
        self._orchestrator = orchestrator
        self._clock = clock
        self._worker_id = worker_id
        self._task_names: Sequence[str] = ()
        self._slots = 0
        self._held: dict[str, KeptLease] = {}
        self._to_speak_for: dict[str, tuple[Delivery, TaskReport]] = {}
        self._done: list[LinkEvent] = []

    @property
    def connections(self) -> Sequence[Connection]:
        return ()

    def serve(self, task_names: Sequence[str]) -> None:
        self._task_names = task_names

    def offer(self, slots: int, ahead: int = 0) -> None:
        self._slots += slots
        if ahead:  # asking is cheap here
            self._done.append(QueueEmpty(ahead))

    def withdraw(self) -> None: ...

    def hold(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        self._held[delivery.id] = KeptLease(
            delivery, heartbeat_seconds, LOOK_SECONDS, renewed_at=leased_at, looked_at=leased_at
        )

    def let_go(self, delivery_id: str, *, tell: bool = False) -> None:
        self._held.pop(delivery_id, None)
        if tell:
            self._done.append(HeartbeatsStopped(delivery_id))

    def speak_for(self, delivery: Delivery, report: TaskReport) -> None:
        self._to_speak_for[delivery.id] = (delivery, report)

    def give_back(self, delivery: Delivery) -> None:
        accepted = self._orchestrator.give_back(delivery)
        self._done.append(GivenBack(delivery.id, accepted))

    def stop_asking(self) -> None:
        self._task_names = ()
        self._done.append(PollingStopped())

    def news(self) -> list[LinkEvent]:
        news, self._done = self._done, []
        try:
            self._poll(news)
            self._tend(news)
            self._speak(news)
        except OrchestratorUnavailableError as error:  # asked again the next time
            news.append(OrchestratorUnreachable(error))
        return news

    def close(self) -> None: ...

    def _poll(self, news: list[LinkEvent]) -> None:
        if not self._slots or not self._task_names:
            return
        asked_at = self._clock.monotonic()
        for delivery in self._orchestrator.poll(
            self._task_names, worker_id=self._worker_id, limit=self._slots
        ):
            self._slots -= 1
            news.append(Delivered(delivery, asked_at))

    def _tend(self, news: list[LinkEvent]) -> None:
        for held in list(self._held.values()):
            now = self._clock.monotonic()
            if now >= held.due_at and (told := tend(self._orchestrator, held, now)):
                news.append(told)

    def _speak(self, news: list[LinkEvent]) -> None:
        for delivery_id, (delivery, report) in list(self._to_speak_for.items()):
            receipt = speak_for_the_dead(self._orchestrator, delivery, report)
            del self._to_speak_for[delivery_id]
            news.append(DeathReported(delivery_id, receipt))
