"""Where an attempt says what it does: one event per step, and progress while a step lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perago.model.outcome import Headway


class Journal(Protocol):
    def event(self, step: str, **fields: object) -> None:
        """A step ended, with what it did. Fields are JSON values and never hold a secret."""
        ...

    def started(self, step: str) -> None:
        """A step begins: for live displays, not for the log."""
        ...

    def progress(self, step: str, headway: Headway) -> None:
        """A transfer or a computation moved on: for live displays, not for the log."""
        ...

    def failure(self, error: BaseException) -> None:
        """An attempt failed: keep the whole traceback where a person can find it."""
        ...

    def printed(self) -> tuple[str, ...]:
        """The end of what the attempt printed, a failure's traceback included, line by line."""
        ...


class SilentJournal:
    """Says nothing: for whoever watches an attempt by its outcome alone."""

    def event(self, step: str, **fields: object) -> None: ...

    def started(self, step: str) -> None: ...

    def progress(self, step: str, headway: Headway) -> None: ...

    def failure(self, error: BaseException) -> None: ...

    def printed(self) -> tuple[str, ...]:
        return ()
