"""What an attempt needs from outside, handed in as one value, and how its steps are announced."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from perago.errors import PeragoError
from perago.ports.environment import NoFailpoints

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from perago.model.attempt import AttemptStep
    from perago.ports.engine import Engine
    from perago.ports.environment import Clock, Failpoints, Journal
    from perago.ports.orchestrator import Orchestrator
    from perago.ports.store import OnTransfer, Store

RequestedLevel = Literal["auto", "soft", "cas"]
ReplacePolicy = Literal["any", "own"]
SingleWriter = Literal["off", "warn", "enforce"]


@dataclass(frozen=True, slots=True)
class Runtime:
    """The ports and the few settings one attempt runs with.

    ``store_patience_seconds`` is how long an attempt waits before it begins for a store that is
    away: a try that fails is one of the few that the task has.
    """

    store: Store
    orchestrator: Orchestrator
    engines: Mapping[str, Engine]
    clock: Clock
    journal: Journal
    workspace_root: Path
    store_name: str = "embedded"
    fence: RequestedLevel = "auto"
    replace: ReplacePolicy = "any"
    single_writer: SingleWriter = "warn"
    store_patience_seconds: float = 0.0
    failpoints: Failpoints = field(default_factory=NoFailpoints)
    warned: set[str] = field(default_factory=set)


class Note(Protocol):
    """Adds fields to the event a step will leave in the journal."""

    def __call__(self, **fields: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Steps:
    """Announces each step, times it, logs it, and passes the failpoint that follows it."""

    journal: Journal
    clock: Clock
    failpoints: Failpoints

    @classmethod
    def of(cls, runtime: Runtime) -> Steps:
        return cls(runtime.journal, runtime.clock, runtime.failpoints)

    @contextmanager
    def step(self, name: AttemptStep, *, then: str | None = None) -> Iterator[Note]:
        fields: dict[str, object] = {}
        began = self.clock.monotonic()
        self.journal.started(name)
        try:
            yield lambda **more: fields.update(more)
        except Exception as error:
            code = error.code if isinstance(error, PeragoError) else type(error).__name__
            self._log(name, began, fields | {"error": code})
            raise
        self._log(name, began, fields)
        if then:
            self.failpoints.hit(then)

    def _log(self, name: AttemptStep, began: float, fields: Mapping[str, object]) -> None:
        self.journal.event(name, seconds=round(self.clock.monotonic() - began, 6), **fields)

    def reached(self, name: str) -> None:
        self.failpoints.hit(name)

    def progress_of(self, name: AttemptStep) -> OnTransfer:
        return lambda transfer: self.journal.progress(name, transfer)
