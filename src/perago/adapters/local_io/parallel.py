"""Many transfers at once: a few threads take items from one queue; a tally counts progress."""

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
_SECONDS_BETWEEN_CALLS = 0.05


def in_parallel(items: Iterable[T], work: Callable[[T], R], *, threads: int) -> list[R]:
    """Call ``work`` on every item; the results come in any order. The first error stops the rest.

    Each thread takes the next item itself: a future per item would cost as much as a small file.
    """
    waiting = deque(items)
    results: list[R] = []

    def work_on_items() -> None:
        try:
            while True:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                results.append(work(item))
        except BaseException:
            waiting.clear()
            raise

    threads = min(threads, len(waiting))
    if threads <= 1:
        work_on_items()
        return results
    with ThreadPoolExecutor(threads, thread_name_prefix="perago-transfer") as pool:
        running = [pool.submit(work_on_items) for _ in range(threads)]
        try:
            for future in running:
                future.result()
        finally:
            waiting.clear()  # an interrupt reaches this thread only: the others end too
    return results


class Tally:
    """Running totals of a transfer; calls ``progress`` at intervals, from one thread at a time."""

    def __init__(self, progress: OnTransfer | None, *, objects: int, total_bytes: int) -> None:
        self._progress = progress
        self._guard = threading.Lock()
        self._objects = 0
        self._bytes = 0
        self._total_objects = objects
        self._total_bytes = total_bytes
        self._called_at = 0.0

    def add_bytes(self, count: int) -> None:
        """Count bytes of an object that is not complete yet."""
        self.add(0, count)

    def add_object(self) -> None:
        """Count a complete object."""
        self.add(1, 0)

    def end(self) -> None:
        """Call ``progress`` with the final totals."""
        if self._progress is not None:
            self._progress(self._now())

    def add(self, objects: int, count: int) -> None:
        """Count complete objects and transferred bytes."""
        if self._progress is None:
            return
        with self._guard:
            self._objects += objects
            self._bytes += count
            if time.monotonic() - self._called_at >= _SECONDS_BETWEEN_CALLS:
                self._called_at = time.monotonic()
                self._progress(self._now())

    def _now(self) -> Transfer:
        return Transfer(self._objects, self._bytes, self._total_objects, self._total_bytes)
