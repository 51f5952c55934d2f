"""The poller seen from the supervisor: a desk in a process of its own, replaced when it dies."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

from perago.worker.desk import Delivered, GivenBack, Spoken
from perago.worker.orders import Begin, GiveBack, Hold, LetGo, Offer, Serve, SpeakFor, StopAsking
from perago.worker.poller import PULSE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.model.attempt import Delivery
    from perago.model.outcome import TaskReport
    from perago.ports.clock import Clock
    from perago.ports.orchestrator import Orchestrator
    from perago.worker.desk import News
    from perago.worker.orders import Order

STUCK_SECONDS = 6 * PULSE_SECONDS
"""Silence after which a poller is taken for stuck, and replaced."""

_RESTART_SECONDS = 1.0


class PollerDesk:
    """Implements :class:`perago.worker.desk.Desk`. Remembers what a new poller has to be told."""

    def __init__(self, orchestrator: Orchestrator, clock: Clock, *, worker_id: str) -> None:
        self._begin = Begin(orchestrator, worker_id)
        self._clock = clock
        self._task_names: tuple[str, ...] = ()
        self._slots = 0
        self._held: dict[str, Hold] = {}
        self._to_speak_for: dict[str, SpeakFor] = {}
        self._to_give_back: dict[str, GiveBack] = {}
        self.restarts = 0
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
        self._send(Serve(self._task_names))

    def offer(self, slots: int) -> None:
        self._slots += slots
        self._send(Offer(slots))

    def hold(self, delivery: Delivery, heartbeat_seconds: float, leased_at: float) -> None:
        order = Hold(delivery, heartbeat_seconds, leased_at)
        self._held[delivery.attempt.task_id] = order
        self._send(order)

    def let_go(self, task_id: str, *, tell: bool = False) -> None:
        if self._held.pop(task_id, None) or tell:
            self._send(LetGo(task_id, tell))

    def speak_for(self, delivery: Delivery, report: TaskReport) -> None:
        order = SpeakFor(delivery, report)
        self._to_speak_for[delivery.attempt.task_id] = order
        self._send(order)

    def give_back(self, delivery: Delivery) -> None:
        order = GiveBack(delivery)
        self._to_give_back[delivery.attempt.task_id] = order
        self._send(order)

    def stop_asking(self) -> None:
        self._task_names = ()
        self._send(StopAsking())

    def news(self) -> list[News]:
        news: list[News] = []
        with suppress(EOFError, OSError):
            while self._connection.poll():
                self._heard_at = self._clock.monotonic()
                if told := self._connection.recv():
                    news.append(told)
                    self._note(told)
        self._replace_if_gone()
        return news

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _note(self, told: News) -> None:
        match told:
            case Delivered():
                self._slots -= 1
            case Spoken(task_id):
                self._to_speak_for.pop(task_id, None)
            case GivenBack(task_id):
                self._to_give_back.pop(task_id, None)
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
        orders: list[Order] = [self._begin, Serve(self._task_names), Offer(self._slots)]
        orders += [*self._held.values(), *self._to_speak_for.values()]
        orders += self._to_give_back.values()
        for order in orders:
            self._send(order)

    def _send(self, order: Order) -> None:
        """To a dead poller nothing is lost: its successor is told everything anew."""
        with suppress(OSError):
            self._connection.send(order)
