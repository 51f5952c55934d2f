"""How a worker stands, and what follows from it: whether it is to be restarted, and takes work."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from perago.worker.watcher import NobodyWatching

if TYPE_CHECKING:
    from perago.errors import PeragoError

STUCK_SECONDS = 30.0
"""How long the supervisor's loop may stand still; it turns about twice a second."""


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What a worker knows of itself.

    ``turned_at`` is when its loop came round last, on the monotonic clock.
    ``orchestrator_trouble`` is the code of the error it last got from the orchestrator, if that
    hasn't answered since.
    """

    turned_at: float
    executors_ready: int
    orchestrator_heard: bool
    orchestrator_trouble: str | None = None
    stopping: bool = False


def illness(state: ServiceState, now: float) -> str | None:
    """Why the worker should be restarted; None if it shouldn't. One that stops is let stop."""
    still = now - state.turned_at
    if state.stopping or still < STUCK_SECONDS:
        return None
    return f"the supervisor's loop has stood still for {still:.0f} s"


def hindrance(state: ServiceState, now: float) -> str | None:
    """Why the worker takes no work right now; None if it does."""
    if state.stopping:
        return "stopping"
    if state.orchestrator_trouble:
        return f"the orchestrator doesn't answer as it should ({state.orchestrator_trouble})"
    if not state.executors_ready:
        return "no executor is up"
    if not state.orchestrator_heard:
        return "the orchestrator hasn't answered yet"
    return illness(state, now)


class Serving(Protocol):
    """What is asked of a service, from other threads."""

    @property
    def turned_at(self) -> float: ...
    @property
    def executors_ready(self) -> int: ...
    @property
    def stopping(self) -> bool: ...


class Standing(NobodyWatching):
    """What is known of a worker from outside: whom it serves tells whether it is heard."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._service: Serving | None = None
        self._heard = False
        self._trouble: str | None = None

    def show(self, service: Serving) -> None:
        self._service = service

    def orchestrator_heard(self) -> None:
        self._heard, self._trouble = True, None

    def orchestrator_unheard(self, error: PeragoError) -> None:
        self._trouble = error.code

    def state(self) -> ServiceState:
        if (service := self._service) is None:
            return ServiceState(self._began, executors_ready=0, orchestrator_heard=False)
        return ServiceState(
            service.turned_at,
            service.executors_ready,
            self._heard,
            self._trouble,
            stopping=service.stopping,
        )
