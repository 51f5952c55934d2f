"""What a supervisor says about its work, as values, and the protocol of what consumes them.

The views of the command line, the log lines of ``perago start``, metrics, traces, lineage and the
health endpoint are all observers of these events.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.errors import PeragoError
    from perago.model.attempt import Attempt, AttemptStep, Execution, TaskStatus
    from perago.model.progress import Progress


class Ending(Enum):
    """Why an attempt is over for this worker."""

    ACCEPTED = auto()
    """The orchestrator accepted a report of it."""
    NOT_ACCEPTED = auto()
    """It was reported, and the orchestrator did not accept the report."""
    LEASE_LOST = auto()
    """It was stopped: it was no longer the current attempt."""
    SUPERSEDED = auto()
    """Its executor died, and another delivery of the same task reports the result."""
    UNKNOWN = auto()
    """Its executor died, and the orchestrator no longer knows the task."""
    GIVEN_BACK = auto()
    """The worker stops; the orchestrator delivers the task to another one."""
    LEFT_TO_LEASE = auto()
    """The worker stops while the attempt publishes; it is retried when its lease ends."""


_WORDS = {
    Ending.LEASE_LOST: "LOST",
    Ending.SUPERSEDED: "SUPERSEDED",
    Ending.UNKNOWN: "UNKNOWN",
    Ending.GIVEN_BACK: "STOPPED",
    Ending.LEFT_TO_LEASE: "STOPPED",
}
_TEXTS = {
    **_WORDS,
    Ending.GIVEN_BACK: "stopped (given back)",
    Ending.LEFT_TO_LEASE: "stopped (left to its lease: it was publishing)",
}


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    execution: Execution

    @property
    def attempt(self) -> Attempt:
        return self.execution.attempt


@dataclass(frozen=True, slots=True)
class StepStarted:
    attempt: Attempt
    step: AttemptStep


@dataclass(frozen=True, slots=True)
class StepEnded:
    """A step ended, or something happened between two steps: one event of the attempt's log.

    ``fields`` are listed in ``docs/reference/logs.md``.
    """

    attempt: Attempt
    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StepProgressed:
    attempt: Attempt
    step: AttemptStep
    progress: Progress


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """Sent once for each :class:`AttemptStarted`, and for an attempt that could not be started.

    ``status`` is set if ``ending`` is ACCEPTED or NOT_ACCEPTED.
    """

    attempt: Attempt
    ending: Ending
    status: TaskStatus | None = None
    reason: str | None = None

    @property
    def accepted(self) -> bool:
        return self.ending is Ending.ACCEPTED

    @property
    def word(self) -> str:
        """The task's status, or one word for an attempt that has none; for metrics and traces."""
        return _WORDS.get(self.ending) or str(self.status)

    @property
    def text(self) -> str:
        """The same for people and log lines, with what they should know about it."""
        if self.ending is Ending.NOT_ACCEPTED:
            return f"{self.status} (not accepted)"
        return _TEXTS.get(self.ending) or str(self.status)


@dataclass(frozen=True, slots=True)
class HeartbeatAccepted:
    attempt: Attempt


@dataclass(frozen=True, slots=True)
class ExecutorLost:
    """An executor died, at this attempt or idle. The attempt's :class:`AttemptEnded` follows."""

    attempt: Attempt | None
    death: str


@dataclass(frozen=True, slots=True)
class RetryAwaited:
    """There is nothing to do until a retry is due in that many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class OrchestratorReachable:
    """The orchestrator answers, for the first time or again."""


@dataclass(frozen=True, slots=True)
class OrchestratorUnreachable:
    """The orchestrator is unreachable or rejects our credentials; polling continues."""

    error: PeragoError


@dataclass(frozen=True, slots=True)
class ProblemFound:
    """Something is wrong that a person should fix; the worker continues as far as it can."""

    error: PeragoError


WorkerEvent: TypeAlias = (
    AttemptStarted
    | StepStarted
    | StepEnded
    | StepProgressed
    | AttemptEnded
    | HeartbeatAccepted
    | ExecutorLost
    | RetryAwaited
    | OrchestratorReachable
    | OrchestratorUnreachable
    | ProblemFound
)


class Observer(Protocol):
    def observe(self, event: WorkerEvent) -> None:
        """Called in the supervisor's own thread. Must neither block nor raise."""
        ...


class NullObserver:
    def observe(self, event: WorkerEvent) -> None:
        """Does nothing."""


class Observers:
    """Passes each event to several observers, in the order given."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def observe(self, event: WorkerEvent) -> None:
        for each in self._observers:
            each.observe(event)
