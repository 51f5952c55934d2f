"""Time, so that a test can own it."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for people and for leases shared between processes."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, the same in every process of this machine."""
        ...

    def sleep(self, seconds: float) -> None: ...
