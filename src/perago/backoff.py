"""The backoff between tries: pauses that grow from the first to the longest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long to pause between tries, in seconds. It only computes: the caller sleeps.

    Iterate over it for the pauses between a fixed number of ``attempts``, which are one fewer, or
    without end if there is no such number. A caller that decides from try to try keeps the last
    pause itself and passes it to :meth:`after`.

    With ``jitter``, each iterated pause is shorter by a random part of up to that share, so that
    clients which lost a server at the same moment do not all return at the same moment.
    """

    first: float
    longest: float
    growth: float = 2.0
    attempts: int | None = None
    jitter: float = 0.0

    def after(self, pause: float) -> float:
        """The pause that follows ``pause``; after none (0) it is the first."""
        return min(max(pause * self.growth, self.first), self.longest)

    def __iter__(self) -> Iterator[float]:
        left = None if self.attempts is None else self.attempts - 1
        pause = self.first
        while left is None or left > 0:
            yield self._jittered(pause)
            pause = self.after(pause)
            left = None if left is None else left - 1

    def _jittered(self, pause: float) -> float:
        if not self.jitter:
            return pause
        import random

        return pause * random.uniform(1 - self.jitter, 1)  # noqa: S311 - nothing secret
