"""This machine's time."""

from __future__ import annotations

import time


class SystemClock:
    """The :class:`~perago.ports.clock.Clock` of production."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, the same in every process of this machine."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let that much time pass; none at all for a time that has passed already."""
        time.sleep(max(0.0, seconds))
