"""Packs: append-only files of objects, and the writer that fills them during a download.

A process that fills a pack holds its lock until the index knows its objects. So a pack that is
neither in the index nor locked was left by a process that died.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from perago.adapters.lakefs.cache.index import PackPosition
from perago.adapters.local_io.file_copy import share_blocks, write_all
from perago.errors import PeragoError
from perago.file_lock import try_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from obstore import Bytes

    from perago.adapters.lakefs.cache.index import Index
    from perago.model.commit import ObjectEntry


_SUFFIX = ".pack"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_COPIED_AT_A_TIME = 64 << 20
_PACK_BYTES = 64 << 20
_MAX_WAITING_COPIES = 32  # each holds an open file, and a process may open only so many


class Pack:
    """A pack that this process fills and has locked. Methods raise OSError if the disk fails."""

    def __init__(self, path: Path, descriptor: int, *, is_new: bool) -> None:
        self._path = path
        self._is_new = is_new
        self._descriptor = descriptor
        self.name = path.name
        self.size = os.lseek(descriptor, 0, os.SEEK_END)

    @classmethod
    def create(cls, directory: Path) -> Pack:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / f"{secrets.token_hex(8)}{_SUFFIX}"
        return cls(path, _locked(path, _NEW), is_new=True)

    @classmethod
    def reopen(cls, path: Path) -> Pack:
        """Open a pack to add to it. Raises BlockingIOError if another process is filling it."""
        return cls(path, _locked(path, _OLD), is_new=False)

    def append(self, data: bytes | memoryview | Bytes) -> int:
        """Append an object; return its position."""
        start = self.size
        write_all(self._descriptor, memoryview(data))
        self.size += len(data)
        return start

    def take_copy(self, source: int) -> None:
        """Copy a whole file into an empty pack; shares its blocks if the filesystem can."""
        if not share_blocks(source, self._descriptor):
            start = 0
            while copied := os.sendfile(self._descriptor, source, start, _COPIED_AT_A_TIME):
                start += copied
        self.size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)

    def discard(self) -> None:
        """Close the pack, and remove a new one. The index doesn't know what was added."""
        if self._is_new:
            self._path.unlink(missing_ok=True)
        self.close()


def _locked(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags, 0o600)
    try:
        if not try_lock(descriptor):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process is filling it", str(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove_abandoned(directory: Path, known: Callable[[], set[str]]) -> None:
    """Remove the packs of dead writers. ``known`` returns the packs in the index."""
    for name in {path.name for path in directory.glob(f"*{_SUFFIX}")} - known():
        with suppress(OSError):
            pack = Pack.reopen(directory / name)
            try:
                # Its writer may have added it to the index before we got the lock.
                if name not in known():
                    (directory / name).unlink()
            finally:
                pack.close()


def bytes_of(directory: Path, names: Iterable[str] | None = None) -> int:
    """The size of these packs, or of all."""
    total = 0
    for path in directory.glob(f"*{_SUFFIX}") if names is None else map(directory.joinpath, names):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def remove(directory: Path, names: list[str]) -> None:
    for name in names:
        with suppress(OSError):
            (directory / name).unlink()


class CacheWriter:
    """Puts the objects of one download into packs; for any number of threads.

    After its first error it keeps nothing more, and raises nothing.
    """

    def __init__(self, directory: Path, index: Index, copier: BackgroundCopier, limit: int) -> None:
        self._directory = directory
        self._copier = copier
        self._index = index
        self._limit = limit
        # Packs are removed as a whole, so several of them have to fit the limit.
        self._pack_bytes = min(_PACK_BYTES, limit // 8)
        self._lock = threading.Lock()
        self._pack: Pack | None = None
        self._objects: list[tuple[ObjectEntry, PackPosition]] = []
        self._has_failed = False

    def add(self, entry: ObjectEntry, data: bytes | Bytes, sha256: str) -> None:
        """Keep a small object."""
        if self._has_failed or not self._wants(entry):
            return
        with self._lock:
            try:
                self._append(entry, data, sha256)
            except (OSError, PeragoError):
                self._fail()

    def add_file(self, entry: ObjectEntry, source: int, sha256: str) -> None:
        """Keep a large object: copy it in the background from the open file it was written to.

        A task may change the file before that. Then the copy has a wrong hash, and a later
        download from the cache notices it.
        """
        if self._has_failed or not self._wants(entry):
            return
        with suppress(OSError):
            duplicate = os.dup(source)
            self._copier.submit(lambda: self._copy(entry, duplicate, sha256))

    def _copy(self, entry: ObjectEntry, source: int, sha256: str) -> None:
        try:
            pack = Pack.create(self._directory)
            try:
                pack.take_copy(source)
                self._commit(pack, [(entry, PackPosition(pack.name, 0, sha256))])
            except BaseException:
                pack.discard()
                raise
            pack.close()
        except (OSError, PeragoError):
            pass
        finally:
            os.close(source)

    def end(self) -> None:
        """Add the last objects to the index."""
        with self._lock:
            try:
                self._commit_open_pack()
            except (OSError, PeragoError):
                self._fail()

    def _wants(self, entry: ObjectEntry) -> bool:
        return bool(entry.location) and entry.size <= self._limit // 4

    def _append(self, entry: ObjectEntry, data: bytes | Bytes, sha256: str) -> None:
        if self._has_failed:
            return
        if self._pack is None:
            self._pack = self._open_pack()
        start = self._pack.append(data)
        self._objects.append((entry, PackPosition(self._pack.name, start, sha256)))
        if self._pack.size >= self._pack_bytes:
            self._commit_open_pack()

    def _open_pack(self) -> Pack:
        """A pack with much room left, so that many small downloads don't leave many packs."""
        name = self._index.pack_below(self._pack_bytes // 2)
        if name is not None:
            with suppress(OSError):  # another process fills it, or has removed it
                return Pack.reopen(self._directory / name)
        return Pack.create(self._directory)

    def _commit_open_pack(self) -> None:
        if self._pack is not None:
            self._commit(self._pack, self._objects)
            self._pack.close()
            self._pack, self._objects = None, []

    def _commit(self, pack: Pack, objects: list[tuple[ObjectEntry, PackPosition]]) -> None:
        remove(self._directory, self._index.add(pack.name, pack.size, objects, limit=self._limit))

    def _fail(self) -> None:
        self._has_failed = True
        if self._pack is not None:
            with suppress(OSError):
                self._pack.discard()
            self._pack = None


class BackgroundCopier:
    """One thread that copies large files in turn: a copy takes as long as the download itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._slots = threading.BoundedSemaphore(_MAX_WAITING_COPIES)

    def submit(self, copy: Callable[[], None]) -> None:
        """Run ``copy`` in the background, or here if too many wait. ``copy`` must not raise."""
        if not self._slots.acquire(blocking=False):
            copy()
            return
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="perago-cache")
            self._pool.submit(self._run, copy)

    def settle(self) -> None:
        """Wait until all copies are finished."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def _run(self, copy: Callable[[], None]) -> None:
        try:
            copy()
        finally:
            self._slots.release()
