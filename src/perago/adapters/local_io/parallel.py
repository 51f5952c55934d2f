"""Many files at once: a few threads that draw from one pile, and a tally of how far they are."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from perago.model.progress import Transfer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perago.ports.store import OnTransfer


T = TypeVar("T")
R = TypeVar("R")
_TELL_EVERY_SECONDS = 0.05


def in_parallel(items: Iterable[T], work: Callable[[T], R], *, threads: int) -> list[R]:
    """``work`` on every item, results in any order; the first error ends all of it.

    Each thread draws the next item itself: a future per item would cost as much as a small file.
    """
    pile = deque(items)
    results: list[R] = []

    def draw() -> None:
        try:
            while True:
                try:
                    item = pile.popleft()
                except IndexError:
                    return
                results.append(work(item))
        except BaseException:
            pile.clear()
            raise

    threads = min(threads, len(pile))
    if threads <= 1:
        draw()
        return results
    with ThreadPoolExecutor(threads, thread_name_prefix="perago-transfer") as pool:
        running = [pool.submit(draw) for _ in range(threads)]
        try:
            for future in running:
                future.result()
        finally:
            pile.clear()  # an interrupt reaches this thread only: the others end with their item
    return results


class Tally:
    """Running totals, told to ``progress`` now and then, from one thread at a time."""

    def __init__(self, progress: OnTransfer | None, *, objects: int, total_bytes: int) -> None:
        self._progress = progress
        self._guard = threading.Lock()
        self._objects = 0
        self._bytes = 0
        self._total_objects = objects
        self._total_bytes = total_bytes
        self._told_at = 0.0

    def add_bytes(self, count: int) -> None:
        """A part of an object has been moved."""
        self.add(0, count)

    def add_object(self) -> None:
        """An object is complete."""
        self.add(1, 0)

    def end(self) -> None:
        """Tell the final totals."""
        if self._progress is not None:
            self._progress(self._now())

    def add(self, objects: int, count: int) -> None:
        """So many objects are complete, and so many bytes have been moved."""
        if self._progress is None:
            return
        with self._guard:
            self._objects += objects
            self._bytes += count
            if time.monotonic() - self._told_at >= _TELL_EVERY_SECONDS:
                self._told_at = time.monotonic()
                self._progress(self._now())

    def _now(self) -> Transfer:
        return Transfer(self._objects, self._bytes, self._total_objects, self._total_bytes)
