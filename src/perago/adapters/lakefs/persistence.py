"""Trying again what failed for now: for reads and uploads, which do no harm twice."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, TypeVar

from perago.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

ATTEMPTS = 6
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0


class Persistence:
    """For one transfer: once an attempt has failed for good, nobody else waits for another."""

    def __init__(self) -> None:
        self._over = threading.Event()

    def until_done(self, attempt: Callable[[], T]) -> T:
        """Raises StoreUnavailableError after the last attempt, and any other error at once."""
        try:
            for pause in pauses(ATTEMPTS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, growth=2):
                try:
                    return attempt()
                except StoreUnavailableError:
                    if self._over.wait(pause):
                        raise
            return attempt()
        except BaseException:
            self._over.set()
            raise


def pauses(attempts: int, first: float, longest: float, *, growth: float) -> Iterator[float]:
    """Between the attempts. Not all who lost the server come back to it at one moment."""
    pause = first
    for _ in range(attempts - 1):
        yield pause * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
        pause = min(pause * growth, longest)
