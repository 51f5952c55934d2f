"""The poller: a process that makes a worker's regular requests to the orchestrator.

Started by a supervisor as ``python -m perago.worker.poller FD``. One thread polls, in batches, and
less and less often while there is no work. Another one schedules heartbeats, which a small pool of
threads sends, so that one slow answer delays no other heartbeat. The supervisor can repeat all
state to a new poller: when this one dies, it starts another. Without a supervisor it ends itself.
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
    KeptLease,
    LeaseLost,
    PollingStopped,
    QueueEmpty,
    renew_or_check,
    report_for_dead_executor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from perago.model.attempt import Delivery
    from perago.ports.orchestrator import Orchestrator
    from perago.worker.messages import PollerCommand
    from perago.worker.orchestrator_link import LinkEvent

ORPHANED_EXIT_CODE = 75
BROKEN_EXIT_CODE = 70

CHECK_SECONDS = 2.0
"""How often an attempt's status is checked between heartbeats."""

SUPERVISOR_STUCK_SECONDS = 30.0
"""Without a command for so long, the supervisor is stuck: no lease is kept any more."""

ALIVE_SECONDS = 5.0
"""How often supervisor and poller send each other something, to tell a stuck one from an idle."""

IDLE = Backoff(first=0.02, longest=1.0)
"""Between polls while there is no work."""

UNREACHABLE = Backoff(first=0.02, longest=5.0)
"""Between requests while the orchestrator doesn't answer."""

_REQUEST_THREADS = 8


class Poller:
    """Executes commands and sends events. ``send`` is called in many threads."""

    def __init__(
        self, orchestrator: Orchestrator, worker_id: str, send: Callable[..., None]
    ) -> None:
        self._orchestrator = orchestrator
        self._worker_id = worker_id
        self._send = send
        self._changed = threading.Condition()
        self._task_names: tuple[str, ...] = ()
        self._slots = 0
        self._ahead = 0
        self._is_polling = False
        self._has_new_credit = False
        self._leases: dict[str, KeptLease] = {}
        self._queued: set[str] = set()
        self._in_flight: set[str] = set()
        self._problem: str | None = "no answer yet"
        self._commanded_at = time.monotonic()
        self._requests = ThreadPoolExecutor(_REQUEST_THREADS, thread_name_prefix="request")

    def start(self) -> None:
        for loop in (self._poll, self._keep_leases, self._send_alive):
            threading.Thread(target=loop, daemon=True, name=loop.__name__.strip("_")).start()

    def execute(self, command: PollerCommand) -> None:  # noqa: C901 - one case for each command
        with self._changed:
            self._commanded_at = time.monotonic()
            match command:
                case SetTasks(task_names):
                    self._task_names = task_names
                case AddCredit(slots, ahead):
                    self._slots += slots
                    self._ahead += ahead
                    self._has_new_credit = True
                case DropPrefetch():
                    self._send(*self._drop_prefetch())
                case KeepLease(delivery, heartbeat_seconds, leased_at):
                    self._leases[delivery.id] = KeptLease(
                        delivery, heartbeat_seconds, CHECK_SECONDS, leased_at, leased_at
                    )
                case ReleaseLease(delivery_id, confirm):
                    self._leases.pop(delivery_id, None)
                    if confirm:
                        self._submit(self._confirm_release, delivery_id)
                case ReportDeath():
                    self._submit(self._report_death, command)
                case GiveBack(delivery):
                    self._submit(self._give_back, delivery)
                case StopPolling():
                    self._task_names = ()
                    self._submit(self._confirm_stop)
                case StartPolling() | Alive():
                    pass
            self._changed.notify_all()

    def _submit(self, action: Callable[..., None], *arguments: object) -> None:
        """Run it in the pool, which would swallow an exception."""

        def run() -> None:
            try:
                action(*arguments)
            except Exception:  # noqa: BLE001 - a bug, whatever it is: this process is replaced
                traceback.print_exc()
                os._exit(BROKEN_EXIT_CODE)

        self._requests.submit(run)

    # --- polling ----------------------------------------------------------------------------------
    def _poll(self) -> None:
        pause = IDLE.first
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._slots + self._ahead > 0 and bool(self._task_names)
                )
                # A slot has just ended an attempt, so the next step of that workflow may be there.
                if self._has_new_credit:
                    pause = IDLE.first
                    self._has_new_credit = False
                names, limit = self._task_names, self._slots + self._ahead
                self._is_polling = True
            pause = self._poll_once(names, limit, pause)
            with self._changed:
                self._is_polling = False
                self._changed.notify_all()
                if pause:
                    self._changed.wait_for(lambda: self._has_new_credit, timeout=pause)

    def _poll_once(self, names: tuple[str, ...], limit: int, pause: float) -> float:
        """Poll once; return the pause before the next poll, 0 for none."""
        polled_at = time.monotonic()
        try:
            found = self._orchestrator.poll(names, worker_id=self._worker_id, limit=limit)
        except OrchestratorError as error:
            self._note_problem(error)
            return UNREACHABLE.after(pause)
        self._note_answer()
        events: list[LinkEvent] = [Delivered(delivery, polled_at) for delivery in found]
        with self._changed:
            for_slots = min(len(found), self._slots)
            self._slots -= for_slots
            self._ahead -= len(found) - for_slots
            if len(found) < limit:
                events += self._drop_prefetch()
        if events:
            self._send(*events)
        if found:
            return 0.0 if len(found) == limit else IDLE.first
        return IDLE.after(pause)

    def _drop_prefetch(self) -> list[LinkEvent]:
        dropped, self._ahead = self._ahead, 0
        return [QueueEmpty(dropped)] if dropped else []

    def _confirm_stop(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._is_polling)
        self._send(PollingStopped())

    # --- leases -----------------------------------------------------------------------------------
    def _keep_leases(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                # A dead or stuck supervisor must not keep an attempt from being retried.
                is_stuck = now - self._commanded_at > SUPERVISOR_STUCK_SECONDS
                idle = [
                    lease
                    for delivery_id, lease in self._leases.items()
                    if delivery_id not in self._queued | self._in_flight and not is_stuck
                ]
                due = [lease for lease in idle if lease.due_at <= now]
                for lease in due:
                    self._queued.add(lease.delivery.id)
                next_at = min((each.due_at for each in idle if each.due_at > now), default=None)
                if not due:
                    self._changed.wait(None if next_at is None else next_at - now)
            for lease in due:
                self._submit(self._renew, lease)

    def _renew(self, lease: KeptLease) -> None:
        delivery_id = lease.delivery.id
        with self._changed:
            self._queued.discard(delivery_id)
            if self._leases.get(delivery_id) is not lease:  # released while it was queued
                return
            self._in_flight.add(delivery_id)
        try:
            event = renew_or_check(self._orchestrator, lease, time.monotonic())
            self._note_answer()
        except OrchestratorError as error:
            self._note_problem(error)
            event = None
        with self._changed:
            self._in_flight.discard(delivery_id)
            is_wanted = self._leases.get(delivery_id) is lease
            if isinstance(event, LeaseLost):  # a heartbeat now would renew another delivery's lease
                self._leases.pop(delivery_id, None)
            self._changed.notify_all()
        if event and is_wanted:
            self._send(event)

    def _stop_heartbeats(self, delivery_id: str) -> None:
        """Return when no heartbeat for it is in flight, and none will be sent.

        Conductor handles a heartbeat by writing the task back as it read it a moment before: one
        that is in flight could undo the request that follows.
        """
        with self._changed:
            self._leases.pop(delivery_id, None)
            self._changed.wait_for(lambda: delivery_id not in self._in_flight)

    def _confirm_release(self, delivery_id: str) -> None:
        self._stop_heartbeats(delivery_id)
        self._send(HeartbeatsStopped(delivery_id))

    def _report_death(self, command: ReportDeath) -> None:
        self._stop_heartbeats(command.delivery.id)
        receipt = None
        for pause in UNREACHABLE:
            try:
                receipt = report_for_dead_executor(
                    self._orchestrator, command.delivery, command.report
                )
            except OrchestratorUnavailableError as error:
                self._note_problem(error)
                time.sleep(pause)
                continue
            except OrchestratorError as error:  # a refusal: trying again does not help
                self._note_problem(error)
            break
        self._send(DeathReported(command.delivery.id, receipt))

    def _give_back(self, delivery: Delivery) -> None:
        self._stop_heartbeats(delivery.id)
        try:
            accepted = self._orchestrator.give_back(delivery)
        except OrchestratorError:  # its lease ends by itself
            accepted = False
        self._send(GivenBack(delivery.id, accepted))

    # --- the orchestrator's health ----------------------------------------------------------------
    def _note_answer(self) -> None:
        with self._changed:
            was, self._problem = self._problem, None
        if was is not None:
            self._send(OrchestratorReachable())

    def _note_problem(self, error: OrchestratorError) -> None:
        with self._changed:
            was, self._problem = self._problem, error.code
        if was != error.code:
            self._send(OrchestratorUnreachable(error))

    def _send_alive(self) -> None:
        while True:
            self._send()
            time.sleep(ALIVE_SECONDS)


def _exit_broken(thread: threading.ExceptHookArgs) -> None:
    """End the process when a bug ends a thread: the supervisor starts a new poller."""
    threading.__excepthook__(thread)
    os._exit(BROKEN_EXIT_CODE)


def main() -> None:
    threading.excepthook = _exit_broken
    # The supervisor handles signals to the whole group: leases are kept while it stops.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    sending = threading.Lock()

    def send(*events: LinkEvent) -> None:
        with sending:
            try:
                connection.send(events)
            except OSError:
                os._exit(ORPHANED_EXIT_CODE)

    begin: StartPolling = connection.recv()
    poller = Poller(begin.orchestrator, begin.worker_id, send)
    poller.start()
    while True:
        try:
            command: PollerCommand = connection.recv()
        except (EOFError, OSError):
            os._exit(ORPHANED_EXIT_CODE)
        poller.execute(command)


if __name__ == "__main__":
    main()
