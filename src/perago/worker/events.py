"""Whoever looks on while attempts run: a terminal, a log, metrics, a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from perago.model.attempt import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.errors import PeragoError
    from perago.model.attempt import Attempt, AttemptStep, Execution
    from perago.model.progress import Progress


LOST = "LOST"
"""The status of an attempt that was stopped, as the orchestrator no longer counted on it."""


class Observer(Protocol):
    """Called from the supervisor's own thread; must neither block it nor raise."""

    def attempt_started(self, attempt: Attempt) -> None: ...

    def execution_began(self, execution: Execution) -> None:
        """After the start of its attempt, and before anything else about that."""
        ...

    def step_started(self, attempt: Attempt, step: AttemptStep) -> None: ...

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None: ...

    def progressed(self, attempt: Attempt, step: AttemptStep, progress: Progress) -> None: ...

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None:
        """Once for each start.

        A ``status`` that the orchestrator has accepted is a TaskStatus and nothing else; any other
        one begins with a word and may go on in prose.
        """
        ...

    def waiting(self, seconds: float) -> None:
        """Nothing to do until a retry is due in that many seconds."""
        ...

    def lease_renewed(self, attempt: Attempt) -> None:
        """A heartbeat was accepted."""
        ...

    def executor_lost(self, attempt: Attempt | None, death: str) -> None:
        """An executor died by itself, at this attempt or idle. The attempt's end is told later."""
        ...

    def orchestrator_heard(self) -> None:
        """It answers: for the first time, or again."""
        ...

    def orchestrator_unheard(self, error: PeragoError) -> None:
        """It stopped answering, or doesn't let us in; it is asked on."""
        ...

    def trouble(self, error: PeragoError) -> None:
        """Something is wrong that a person should see to; the work goes on as far as it can."""
        ...


def outcome(status: str) -> tuple[str, bool]:
    """An attempt's end in one word, and whether the orchestrator accepted it."""
    return status.partition(" ")[0].upper(), status in TaskStatus.__members__


class NullObserver:
    def attempt_started(self, attempt: Attempt) -> None: ...

    def execution_began(self, execution: Execution) -> None: ...

    def step_started(self, attempt: Attempt, step: AttemptStep) -> None: ...

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None: ...

    def progressed(self, attempt: Attempt, step: AttemptStep, progress: Progress) -> None: ...

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None: ...

    def waiting(self, seconds: float) -> None: ...

    def lease_renewed(self, attempt: Attempt) -> None: ...

    def executor_lost(self, attempt: Attempt | None, death: str) -> None: ...

    def orchestrator_heard(self) -> None: ...

    def orchestrator_unheard(self, error: PeragoError) -> None: ...

    def trouble(self, error: PeragoError) -> None: ...


class Observers:
    """Several watchers as one, told in the order they are given."""

    def __init__(self, *watchers: Observer) -> None:
        self._watchers = watchers

    def attempt_started(self, attempt: Attempt) -> None:
        for each in self._watchers:
            each.attempt_started(attempt)

    def execution_began(self, execution: Execution) -> None:
        for each in self._watchers:
            each.execution_began(execution)

    def step_started(self, attempt: Attempt, step: AttemptStep) -> None:
        for each in self._watchers:
            each.step_started(attempt, step)

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None:
        for each in self._watchers:
            each.step_ended(attempt, fields)

    def progressed(self, attempt: Attempt, step: AttemptStep, progress: Progress) -> None:
        for each in self._watchers:
            each.progressed(attempt, step, progress)

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None:
        for each in self._watchers:
            each.attempt_ended(attempt, status, reason)

    def waiting(self, seconds: float) -> None:
        for each in self._watchers:
            each.waiting(seconds)

    def lease_renewed(self, attempt: Attempt) -> None:
        for each in self._watchers:
            each.lease_renewed(attempt)

    def executor_lost(self, attempt: Attempt | None, death: str) -> None:
        for each in self._watchers:
            each.executor_lost(attempt, death)

    def orchestrator_heard(self) -> None:
        for each in self._watchers:
            each.orchestrator_heard()

    def orchestrator_unheard(self, error: PeragoError) -> None:
        for each in self._watchers:
            each.orchestrator_unheard(error)

    def trouble(self, error: PeragoError) -> None:
        for each in self._watchers:
            each.trouble(error)
