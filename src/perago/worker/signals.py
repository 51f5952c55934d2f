"""Ctrl-C and SIGTERM as a question to ask: never in the middle of a step."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class StopSignal:
    """Counts the signals that ask this process to stop."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._since = self._since or time.monotonic()
        self._count += 1

    @property
    def came(self) -> bool:
        return self._count > 0

    def is_due(self, grace_seconds: float) -> bool:
        """Whether to stop now: the first one waits out the grace, a second one doesn't."""
        if not self._count:
            return False
        return self._count > 1 or time.monotonic() - self._since >= grace_seconds

    @contextmanager
    def watched(self) -> Iterator[StopSignal]:
        """Ask it meanwhile. After a Ctrl-C, further ones are ignored when this ends.

        The process is stopping then, and one more would only cost the person the account of it, or
        the exit code: Python takes its own handlers away before it has ended.
        """
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self._note) for number in numbers}
        try:
            yield self
        finally:
            if self.came:
                before[signal.SIGINT] = signal.SIG_IGN
            for number, handler in before.items():
                signal.signal(number, handler)
