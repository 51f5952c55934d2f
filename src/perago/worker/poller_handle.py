"""The poller seen from the supervisor: a desk in a process of its own, replaced when it dies."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from perago.worker.executor_handle import ConnectionWaiter
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
from perago.worker.poller import PULSE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.model.attempt import Delivery
    from perago.model.outcome import TaskReport
    from perago.ports.environment import Clock
    from perago.ports.orchestrator import Orchestrator
    from perago.worker.messages import PollerCommand
    from perago.worker.orchestrator_link import LinkEvent


STUCK_SECONDS = 6 * PULSE_SECONDS
"""Silence after which a poller is taken for stuck, and replaced."""
_RESTART_SECONDS = 1.0


class PollerHandle:
    """The :class:`OrchestratorLink` of a worker. It remembers what a new poller has to know."""

    def __init__(self, orchestrator: Orchestrator, clock: Clock, *, worker_id: str) -> None:
        self._begin = StartPolling(orchestrator, worker_id)
        self._clock = clock
        self._task_names: tuple[str, ...] = ()
        self._slots = 0
        self._ahead = 0
        self._pulsed_at = clock.monotonic()
        self._held: dict[str, KeepLease] = {}
        self._to_stop: list[StopPolling] = []
        self._to_let_go: dict[str, ReleaseLease] = {}
        self._to_speak_for: dict[str, ReportDeath] = {}
        self._to_give_back: dict[str, GiveBack] = {}
        self.restarts = 0
        self._ears = ConnectionWaiter()
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def connections(self) -> Sequence[Connection]:
        # What has ended would be ready to be read for ever.
        return (self._connection,) if self._process.poll() is None else ()

    def serve(self, task_names: Sequence[str]) -> None:
        self._task_names = tuple(task_names)
        self._send(SetTasks(self._task_names))

    def offer(self, slots: int, ahead: int = 0) -> None:
        self._slots += slots
        self._ahead += ahead
        self._send(AddCredit(slots, ahead))

    def withdraw(self) -> None:
        if self._ahead:
            self._send(DropPrefetch())

    def hold(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        order = KeepLease(delivery, heartbeat_seconds, leased_at)
        self._held[delivery.id] = order
        self._send(order)

    def let_go(self, delivery_id: str, *, tell: bool = False) -> None:
        order, was_held = ReleaseLease(delivery_id, tell), self._held.pop(delivery_id, None)
        if tell:
            self._to_let_go[delivery_id] = order
        if was_held or tell:
            self._send(order)

    def speak_for(self, delivery: Delivery, report: TaskReport) -> None:
        order = ReportDeath(delivery, report)
        self._to_speak_for[delivery.id] = order
        self._send(order)

    def give_back(self, delivery: Delivery) -> None:
        order = GiveBack(delivery)
        self._to_give_back[delivery.id] = order
        self._send(order)

    def stop_asking(self) -> None:
        self._task_names = ()
        self._to_stop = [StopPolling()]
        self._send(*self._to_stop)

    def news(self) -> list[LinkEvent]:
        news: list[LinkEvent] = []
        now = self._clock.monotonic()
        if now - self._pulsed_at >= PULSE_SECONDS:
            self._pulsed_at = now
            self._send(Alive())
        with suppress(EOFError, OSError):
            while self._ears.listen([self._connection], 0):
                self._heard_at = self._clock.monotonic()
                for told in self._connection.recv():
                    news.append(told)
                    self._note(told)
        self._replace_if_gone()
        return news

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _note(self, told: LinkEvent) -> None:
        match told:
            case Delivered() if self._slots:
                self._slots -= 1
            case Delivered():
                self._ahead -= 1
            case QueueEmpty(dropped):
                self._ahead -= dropped
            case PollingStopped():
                self._to_stop.clear()
            case HeartbeatsStopped(delivery_id):
                self._to_let_go.pop(delivery_id, None)
            case DeathReported(delivery_id):
                self._to_speak_for.pop(delivery_id, None)
            case GivenBack(delivery_id):
                self._to_give_back.pop(delivery_id, None)
            case _:
                pass

    def _replace_if_gone(self) -> None:
        now = self._clock.monotonic()
        dead = self._process.poll() is not None
        if not dead and now - self._heard_at < STUCK_SECONDS:
            return
        if now - self._started_at < _RESTART_SECONDS:
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
        self._started_at = self._heard_at = self._clock.monotonic()
        orders: list[PollerCommand] = [self._begin, SetTasks(self._task_names)]
        orders += [AddCredit(self._slots, self._ahead)]
        orders += [*self._to_stop, *self._held.values(), *self._to_let_go.values()]
        orders += [*self._to_speak_for.values(), *self._to_give_back.values()]
        self._send(*orders)

    def _send(self, *orders: PollerCommand) -> None:
        """To a dead poller nothing is lost: its successor is told everything anew."""
        with suppress(OSError):
            for order in orders:
                self._connection.send(order)
