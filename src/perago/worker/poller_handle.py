"""The poller seen from the supervisor: a child process that is replaced when it dies."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from perago.worker.messages import (
    AddCredit,
    Alive,
    ConnectionWaiter,
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
from perago.worker.poller import ALIVE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.model.attempt import Delivery
    from perago.model.outcome import TaskReport
    from perago.ports.environment import Clock
    from perago.ports.orchestrator import Orchestrator
    from perago.worker.messages import PollerCommand
    from perago.worker.orchestrator_link import LinkEvent

STUCK_SECONDS = 6 * ALIVE_SECONDS
"""A poller that has sent nothing for so long is replaced."""
_RESTART_SECONDS = 1.0


class PollerHandle:
    """The :class:`~perago.worker.orchestrator_link.OrchestratorLink` of ``perago start``.

    It keeps the commands that are not yet answered, and sends them to a new poller again.
    """

    def __init__(self, orchestrator: Orchestrator, clock: Clock, *, worker_id: str) -> None:
        self._begin = StartPolling(orchestrator, worker_id)
        self._clock = clock
        self._task_names: tuple[str, ...] = ()
        self._slots = 0
        self._ahead = 0
        self._alive_sent_at = clock.monotonic()
        self._leases: dict[str, KeepLease] = {}
        self._stops: list[StopPolling] = []
        self._releases: dict[str, ReleaseLease] = {}
        self._death_reports: dict[str, ReportDeath] = {}
        self._give_backs: dict[str, GiveBack] = {}
        self.restarts = 0
        self._waiter = ConnectionWaiter()
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def connections(self) -> Sequence[Connection]:
        # The connection of a dead poller would always be ready.
        return (self._connection,) if self._process.poll() is None else ()

    def set_tasks(self, task_names: Sequence[str]) -> None:
        self._task_names = tuple(task_names)
        self._send(SetTasks(self._task_names))

    def add_credit(self, slots: int, ahead: int = 0) -> None:
        self._slots += slots
        self._ahead += ahead
        self._send(AddCredit(slots, ahead))

    def drop_prefetch(self) -> None:
        if self._ahead:
            self._send(DropPrefetch())

    def keep_lease(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        self._leases[delivery.id] = KeepLease(delivery, heartbeat_seconds, leased_at)
        self._send(self._leases[delivery.id])

    def release_lease(self, delivery_id: str, *, confirm: bool = False) -> None:
        command, was_kept = ReleaseLease(delivery_id, confirm), self._leases.pop(delivery_id, None)
        if confirm:
            self._releases[delivery_id] = command
        if was_kept or confirm:
            self._send(command)

    def report_death(self, delivery: Delivery, report: TaskReport) -> None:
        self._death_reports[delivery.id] = ReportDeath(delivery, report)
        self._send(self._death_reports[delivery.id])

    def give_back(self, delivery: Delivery) -> None:
        self._give_backs[delivery.id] = GiveBack(delivery)
        self._send(self._give_backs[delivery.id])

    def stop_polling(self) -> None:
        self._task_names = ()
        self._stops = [StopPolling()]
        self._send(*self._stops)

    def events(self) -> list[LinkEvent]:
        events: list[LinkEvent] = []
        now = self._clock.monotonic()
        if now - self._alive_sent_at >= ALIVE_SECONDS:
            self._alive_sent_at = now
            self._send(Alive())
        with suppress(EOFError, OSError):
            while self._waiter.wait([self._connection], 0):
                self._received_at = self._clock.monotonic()
                events += self._connection.recv()
        for event in events:
            self._forget_answered(event)
        self._replace_if_gone()
        return events

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _forget_answered(self, event: LinkEvent) -> None:
        match event:
            case Delivered() if self._slots:
                self._slots -= 1
            case Delivered():
                self._ahead -= 1
            case QueueEmpty(dropped):
                self._ahead -= dropped
            case PollingStopped():
                self._stops.clear()
            case HeartbeatsStopped(delivery_id):
                self._releases.pop(delivery_id, None)
            case DeathReported(delivery_id):
                self._death_reports.pop(delivery_id, None)
            case GivenBack(delivery_id):
                self._give_backs.pop(delivery_id, None)

    def _replace_if_gone(self) -> None:
        now = self._clock.monotonic()
        is_dead = self._process.poll() is not None
        is_stuck = now - self._received_at >= STUCK_SECONDS
        if not (is_dead or is_stuck) or now - self._started_at < _RESTART_SECONDS:
            return
        self.close()
        self.restarts += 1
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "perago.worker.poller", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        self._started_at = self._received_at = self._clock.monotonic()
        self._send(self._begin, SetTasks(self._task_names), AddCredit(self._slots, self._ahead))
        self._send(*self._stops, *self._leases.values(), *self._releases.values())
        self._send(*self._death_reports.values(), *self._give_backs.values())

    def _send(self, *commands: PollerCommand) -> None:
        """Nothing is lost if the poller is dead: the next one gets all commands again."""
        with suppress(OSError):
            for command in commands:
                self._connection.send(command)
