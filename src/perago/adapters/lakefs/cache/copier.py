"""Copies that nobody waits for: a large file takes as long to copy as to fetch."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_WAITING = 32
"""Each holds an open file, and a process may have only so many."""


class Copier:
    """One thread that works off what it is given, in order; made when it is first needed."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._room = threading.BoundedSemaphore(_WAITING)

    def do(self, copy: Callable[[], None]) -> None:
        """Soon, or right here if too many are waiting. ``copy`` never raises."""
        if not self._room.acquire(blocking=False):
            copy()
            return
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="perago-cache")
            self._pool.submit(self._make_room_after, copy)

    def settle(self) -> None:
        """Return when everything it was given is done."""
        with self._guard:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _make_room_after(self, copy: Callable[[], None]) -> None:
        try:
            copy()
        finally:
            self._room.release()
