"""Whoever looks on while attempts run: a terminal, a log, a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.model.attempt import Attempt
    from perago.model.outcome import Transfer


class Watcher(Protocol):
    """Called from the supervisor's own thread; must not block it."""

    def attempt_started(self, attempt: Attempt) -> None: ...

    def step_started(self, attempt: Attempt, step: str) -> None: ...

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None: ...

    def progressed(self, attempt: Attempt, step: str, transfer: Transfer) -> None: ...

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None: ...

    def waiting(self, seconds: float) -> None:
        """Nothing to do until a retry is due in that many seconds."""
        ...


class NobodyWatching:
    def attempt_started(self, attempt: Attempt) -> None: ...

    def step_started(self, attempt: Attempt, step: str) -> None: ...

    def step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None: ...

    def progressed(self, attempt: Attempt, step: str, transfer: Transfer) -> None: ...

    def attempt_ended(self, attempt: Attempt, status: str, reason: str | None) -> None: ...

    def waiting(self, seconds: float) -> None: ...
