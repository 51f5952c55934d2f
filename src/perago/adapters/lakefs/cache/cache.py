"""The cache as its user sees it: what it has is delivered, what is fetched is kept."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.adapters.lakefs.cache.index import Index
from perago.adapters.lakefs.cache.packs import CacheWriter, bytes_of, remove, remove_abandoned
from perago.adapters.lakefs.cache.reader import CachedObject, copy_objects
from perago.errors import PeragoError, StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from perago.adapters.lakefs.cache.index import PackPosition
    from perago.adapters.local_io.parallel import Tally
    from perago.model.workspace import Download, FetchedFile


# --- Copies that nobody waits for: a large file takes as long to copy as to fetch ---
_WAITING = 32
"""Each holds an open file, and a process may have only so many."""


class BackgroundCopier:
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


@dataclass(frozen=True, slots=True)
class Trimmed:
    removed_bytes: int
    kept_bytes: int


class ObjectCache:
    """Objects by where the store keeps them, their checksum and size; at most ``limit_bytes``.

    For any number of threads and processes. Those that haven't been used for the longest time go
    first. What is being fetched at the moment comes on top of the limit.
    """

    def __init__(self, directory: Path, *, limit_bytes: int) -> None:
        self._directory = directory
        self._packs = directory / "packs"
        self._index = Index(directory / "index.db")
        self._limit = limit_bytes
        self._copier = BackgroundCopier()
        self._is_tidy = False

    def close(self) -> None:
        """Finish what is being kept, and let go of the files."""
        self.settle()
        self._index.close()

    def settle(self) -> None:
        """Return when everything that is being kept has been."""
        self._copier.settle()

    def deliver(
        self, wanted: Sequence[Download], tally: Tally
    ) -> tuple[list[FetchedFile], Sequence[Download]]:
        """Put what it has in place, verified; the files, and what is still wanted."""
        self.settle()  # what is being kept just now may be what is wanted
        finds = self._find(wanted)
        if not finds:
            return [], wanted
        files = copy_objects(self._packs, finds, tally)
        delivered = {file.key for file in files}
        self._learn(finds, delivered)
        return files, [one for one in wanted if one.entry.key not in delivered]

    @contextmanager
    def filling(self) -> Iterator[CacheWriter]:
        """For what is fetched from the store while the block lasts."""
        self._tidy_once()
        filling = CacheWriter(self._packs, self._index, self._copier, self._limit)
        try:
            yield filling
        finally:
            filling.end()

    def trim(self, *, dry_run: bool = False) -> Trimmed:
        """Cut it to its limit now, which may have been lowered, and see to what the dead left."""
        self.settle()
        before = bytes_of(self._packs)
        with self._silently():
            if dry_run:
                going = bytes_of(self._packs, self._index.superfluous(self._limit))
                return Trimmed(going, before - going)
            if self._directory.exists():
                remove(self._packs, self._index.make_room(self._limit))
                remove_abandoned(self._packs, self._index.packs)
        kept = bytes_of(self._packs)
        return Trimmed(max(0, before - kept), kept)

    def _find(self, wanted: Sequence[Download]) -> list[CachedObject]:
        places: list[PackPosition | None] = []
        with self._silently():
            places = self._index.places([one.entry for one in wanted])
        return [
            CachedObject(one, place)
            for one, place in zip(wanted, places, strict=False)
            if place is not None
        ]

    def _learn(self, finds: list[CachedObject], delivered: set[str]) -> None:
        """Remember what was of use, and forget what wasn't there."""
        useless = [find for find in finds if find.download.entry.key not in delivered]
        with self._silently():
            self._index.touch({find.place.pack for find in finds})
            if useless:
                self._index.forget([find.download.entry for find in useless])

    def _tidy_once(self) -> None:
        if not self._is_tidy:
            self._is_tidy = True
            with self._silently():
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                remove_abandoned(self._packs, self._index.packs)

    @contextmanager
    def _silently(self) -> Iterator[None]:
        try:
            yield
        except StoreFormatError:
            with suppress(OSError, PeragoError):
                self._index.start_over()
        except (OSError, PeragoError):
            pass
