"""A clock that a test owns."""

from __future__ import annotations

import threading


class ManualClock:
    """A :class:`~perago.ports.clock.Clock` that stands still until told otherwise.

    Sleeping on it takes no time and moves it on, so code that waits runs at once.
    """

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self._lock = threading.Lock()
        self._epoch = now
        self._elapsed = 0.0

    def now(self) -> float:
        """Seconds since the epoch, as this clock has it."""
        return self._epoch + self._elapsed

    def monotonic(self) -> float:
        """Seconds this clock was moved on since it was made."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Move on by that much and return at once."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError for a negative time: clocks don't go back."""
        if seconds < 0:
            raise ValueError(f"a clock can't go back by {-seconds} seconds")
        with self._lock:
            self._elapsed += seconds
