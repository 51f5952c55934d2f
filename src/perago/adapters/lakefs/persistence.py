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
            for pause in _pauses():
                try:
                    return attempt()
                except StoreUnavailableError:
                    if self._over.wait(pause):
                        raise
            return attempt()
        except BaseException:
            self._over.set()
            raise


def _pauses() -> Iterator[float]:
    """Between the attempts. Not all the threads that lost the server come back at one moment."""
    longest = FIRST_PAUSE_SECONDS
    for _ in range(ATTEMPTS - 1):
        yield longest * random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
        longest = min(longest * 2, LONGEST_PAUSE_SECONDS)
