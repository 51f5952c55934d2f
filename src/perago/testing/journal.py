"""A journal that remembers, for tests that ask what happened."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.model.outcome import Headway


class RecordingJournal:
    """Implements :class:`perago.ports.journal.Journal` in memory."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.tracebacks: list[str] = []
        self.transfers: list[tuple[str, Headway]] = []

    def event(self, step: str, **fields: object) -> None:
        self.events.append({"step": step, **fields})

    def started(self, step: str) -> None: ...

    def progress(self, step: str, headway: Headway) -> None:
        self.transfers.append((step, headway))

    def failure(self, error: BaseException) -> None:
        self.tracebacks.append("".join(traceback.format_exception(error)))

    def printed(self) -> tuple[str, ...]:
        """The tracebacks alone: in a test, what a body prints is the test's own output."""
        return tuple(line for trace in self.tracebacks for line in trace.splitlines())

    def steps(self) -> list[str]:
        return [str(event["step"]) for event in self.events]

    def of(self, step: str) -> dict[str, object]:
        """The last event of that step. Raises KeyError, listing what there is instead."""
        for event in reversed(self.events):
            if event["step"] == step:
                return event
        raise KeyError(f"no {step!r} among {self.steps()}")
