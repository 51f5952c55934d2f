"""The poller: a process of its own that does all of a worker's regular talk with the orchestrator.

Started by a supervisor as ``python -m perago.worker.poller FD``. One thread asks for work, in
batches and ever less often while there is none. Another sees that leases are kept, each by a thread
of a small pool, so that one slow answer delays no other heartbeat. It holds no state that can't be
told to its successor: when it dies, the supervisor starts another one. When the supervisor is gone
it ends itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from perago.backoff import Backoff
from perago.errors import OrchestratorError, OrchestratorUnavailableError
from perago.worker.events import OrchestratorReachable, OrchestratorUnreachable
from perago.worker.heartbeats import KeptLease, LeaseLost, speak_for_the_dead, tend
from perago.worker.messages import (
    AddCredit,
    Alive,
    DropPrefetch,
    GiveBack,
    HeartbeatsStopped,
    KeepLease,
    ReleaseLease,
    ReportDeath,
    SetTasks,
    StartPolling,
    StopPolling,
)
from perago.worker.orchestrator_link import (
    DeathReported,
    Delivered,
    GivenBack,
    PollingStopped,
    QueueEmpty,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from perago.model.attempt import Delivery
    from perago.ports.orchestrator import Orchestrator
    from perago.worker.messages import PollerCommand
    from perago.worker.orchestrator_link import LinkEvent

ORPHANED_EXIT_CODE = 75
BROKEN_EXIT_CODE = 70

LOOK_SECONDS = 2.0
"""How often a held attempt's standing is looked up between heartbeats."""

DEAF_SECONDS = 30.0
"""Silence after which the supervisor is taken for stuck: then its leases are let run out."""

PULSE_SECONDS = 5.0
"""How often the supervisor hears from us, so that a stuck poller can be told from an idle one."""

IDLE = Backoff(first=0.02, longest=1.0)
"""Between polls while there is no work."""

UNREACHABLE = Backoff(first=0.02, longest=5.0)
"""Between requests while the orchestrator doesn't answer."""

_TALKING_THREADS = 8


class Poller:
    def __init__(
        self, orchestrator: Orchestrator, worker_id: str, tell: Callable[..., None]
    ) -> None:
        self._orchestrator = orchestrator
        self._worker_id = worker_id
        self._tell = tell
        self._changed = threading.Condition()
        self._task_names: tuple[str, ...] = ()
        self._slots = 0
        self._ahead = 0
        self._is_asking = False
        self._held: dict[str, KeptLease] = {}
        self._to_tend: set[str] = set()
        self._being_tended: set[str] = set()
        self._trouble: str | None = "nothing was heard yet"
        self._heard_at = time.monotonic()
        self._freshly_offered = False
        self._talking = ThreadPoolExecutor(_TALKING_THREADS, thread_name_prefix="talk")

    def start(self) -> None:
        for loop in (self._ask, self._keep, self._pulse):
            threading.Thread(target=loop, daemon=True, name=loop.__name__.strip("_")).start()

    def obey(self, order: PollerCommand) -> None:  # noqa: C901 - a list of all there are
        with self._changed:
            self._heard_at = time.monotonic()
            match order:
                case SetTasks(task_names):
                    self._task_names = task_names
                case AddCredit(slots, ahead):
                    self._slots += slots
                    self._ahead += ahead
                    self._freshly_offered = True
                case DropPrefetch():
                    self._tell(*self._dropped())
                case KeepLease(delivery, heartbeat_seconds, leased_at):
                    self._held[delivery.id] = KeptLease(
                        delivery, heartbeat_seconds, LOOK_SECONDS, leased_at, leased_at
                    )
                case ReleaseLease(delivery_id, to_be_told):
                    self._held.pop(delivery_id, None)
                    if to_be_told:
                        self._talk(self._tell_when_quiet, delivery_id)
                case ReportDeath():
                    self._talk(self._speak, order)
                case GiveBack(delivery):
                    self._talk(self._give_back, delivery)
                case StopPolling():
                    self._task_names = ()
                    self._talk(self._tell_when_no_longer_asking)
                case StartPolling() | Alive():
                    pass
            self._changed.notify_all()

    def _talk(self, say: Callable[..., None], *about: object) -> None:
        """Do it in a thread of the pool, whose errors nobody would ever look at otherwise."""

        def loudly() -> None:
            try:
                say(*about)
            except Exception:  # noqa: BLE001 - a bug, whatever it is: this process is replaced
                traceback.print_exc()
                os._exit(BROKEN_EXIT_CODE)

        self._talking.submit(loudly)

    # --- asking for work --------------------------------------------------------------------------
    def _ask(self) -> None:
        pause = IDLE.first
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._slots + self._ahead > 0 and bool(self._task_names)
                )
                # A slot that has become free has just ended an attempt, and what follows on that
                # is the likeliest thing to be there now.
                if self._freshly_offered:
                    pause = IDLE.first
                    self._freshly_offered = False
                names, limit = self._task_names, self._slots + self._ahead
                self._is_asking = True
            pause = self._ask_once(names, limit, pause)
            with self._changed:
                self._is_asking = False
                self._changed.notify_all()
                if pause:
                    self._changed.wait_for(lambda: self._freshly_offered, timeout=pause)

    def _ask_once(self, names: tuple[str, ...], limit: int, pause: float) -> float:
        """Ask once; the pause before the next time, 0 for none."""
        asked_at = time.monotonic()
        try:
            found = self._orchestrator.poll(names, worker_id=self._worker_id, limit=limit)
        except OrchestratorError as error:
            self._note_silence(error)
            return UNREACHABLE.after(pause)
        self._note_answer()
        news: list[LinkEvent] = [Delivered(delivery, asked_at) for delivery in found]
        with self._changed:
            for_slots = min(len(found), self._slots)
            self._slots -= for_slots
            self._ahead -= len(found) - for_slots
            if len(found) < limit:
                news += self._dropped()
        if news:
            self._tell(*news)
        if found:
            return 0.0 if len(found) == limit else IDLE.first
        return IDLE.after(pause)

    def _dropped(self) -> list[LinkEvent]:
        dropped, self._ahead = self._ahead, 0
        return [QueueEmpty(dropped)] if dropped else []

    def _tell_when_no_longer_asking(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_asking)
        self._tell(PollingStopped())

    # --- keeping leases ---------------------------------------------------------------------------
    def _keep(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                # Who isn't there any more, or stands still, keeps nothing from being tried again.
                is_alone = now - self._heard_at > DEAF_SECONDS
                waiting = [
                    held
                    for delivery_id, held in self._held.items()
                    if delivery_id not in self._to_tend | self._being_tended and not is_alone
                ]
                due = [held for held in waiting if held.due_at <= now]
                for held in due:
                    self._to_tend.add(held.delivery.id)
                later = min((h.due_at for h in waiting if h.due_at > now), default=None)
                if not due:
                    self._changed.wait(None if later is None else later - now)
            for held in due:
                self._talk(self._tend, held)

    def _tend(self, held: KeptLease) -> None:
        delivery_id = held.delivery.id
        with self._changed:
            self._to_tend.discard(delivery_id)
            if self._held.get(delivery_id) is not held:  # let go while it waited for a thread
                return
            self._being_tended.add(delivery_id)
        try:
            told = tend(self._orchestrator, held, time.monotonic())
            self._note_answer()
        except OrchestratorError as error:
            self._note_silence(error)
            told = None
        with self._changed:
            self._being_tended.discard(delivery_id)
            is_wanted = self._held.get(delivery_id) is held
            if isinstance(told, LeaseLost):  # a heartbeat now would be for somebody else's delivery
                self._held.pop(delivery_id, None)
            self._changed.notify_all()
        if told and is_wanted:
            self._tell(told)

    def _quieten(self, delivery_id: str) -> None:
        """Return when no heartbeat for it is under way, nor will be.

        Conductor answers a heartbeat by writing the task back as it read it a moment before: one
        that is under way could undo what is sent now.
        """
        with self._changed:
            self._held.pop(delivery_id, None)
            self._changed.wait_for(lambda: delivery_id not in self._being_tended)

    def _tell_when_quiet(self, delivery_id: str) -> None:
        self._quieten(delivery_id)
        self._tell(HeartbeatsStopped(delivery_id))

    def _speak(self, order: ReportDeath) -> None:
        self._quieten(order.delivery.id)
        pause = 0.0
        receipt = None
        while True:
            try:
                receipt = speak_for_the_dead(self._orchestrator, order.delivery, order.report)
            except OrchestratorUnavailableError as error:
                self._note_silence(error)
                pause = UNREACHABLE.after(pause)
                time.sleep(pause)
                continue
            except OrchestratorError as error:  # a no that stays one
                self._note_silence(error)
            break
        self._tell(DeathReported(order.delivery.id, receipt))

    def _give_back(self, delivery: Delivery) -> None:
        self._quieten(delivery.id)
        try:
            accepted = self._orchestrator.give_back(delivery)
        except OrchestratorError:  # its lease ends by itself
            accepted = False
        self._tell(GivenBack(delivery.id, accepted))

    # --- how the orchestrator is ------------------------------------------------------------------
    def _note_answer(self) -> None:
        with self._changed:
            was, self._trouble = self._trouble, None
        if was is not None:
            self._tell(OrchestratorReachable())

    def _note_silence(self, error: OrchestratorError) -> None:
        with self._changed:
            was, self._trouble = self._trouble, error.code
        if was != error.code:
            self._tell(OrchestratorUnreachable(error))

    def _pulse(self) -> None:
        while True:
            self._tell()
            time.sleep(PULSE_SECONDS)


def _end_broken(thread: threading.ExceptHookArgs) -> None:
    """A thread that ended by a bug would go unnoticed, so end this process: it is replaced."""
    threading.__excepthook__(thread)
    os._exit(BROKEN_EXIT_CODE)


def main() -> None:
    threading.excepthook = _end_broken
    # Signals to the whole group are the supervisor's to act on: leases are kept while it finishes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    sending = threading.Lock()

    def tell(*news: LinkEvent) -> None:
        with sending:
            try:
                connection.send(news)
            except OSError:
                os._exit(ORPHANED_EXIT_CODE)

    begin: StartPolling = connection.recv()
    poller = Poller(begin.orchestrator, begin.worker_id, tell)
    poller.start()
    while True:
        try:
            order: PollerCommand = connection.recv()
        except (EOFError, OSError):
            os._exit(ORPHANED_EXIT_CODE)
        poller.obey(order)


if __name__ == "__main__":
    main()
