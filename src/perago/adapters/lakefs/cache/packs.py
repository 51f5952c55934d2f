"""Packs: files that objects are appended to, one after the other, and never changed otherwise.

Whoever fills a pack holds its lock until the index knows what is in it. So a pack that the index
doesn't know and nobody locks was left by a process that died.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
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

    from perago.adapters.lakefs.cache.cache import BackgroundCopier
    from perago.adapters.lakefs.cache.index import Index
    from perago.model.commit import ObjectEntry


SUFFIX = ".pack"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_COPIED_AT_A_TIME = 64 << 20


class Pack:
    """One that is being filled, by us alone. Raises OSError wherever the disk does."""

    def __init__(self, path: Path, descriptor: int, *, is_new: bool) -> None:
        self._path = path
        self._is_new = is_new
        self._descriptor = descriptor
        self.name = path.name
        self.size = os.lseek(descriptor, 0, os.SEEK_END)

    @classmethod
    def create(cls, directory: Path) -> Pack:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = directory / f"{secrets.token_hex(8)}{SUFFIX}"
        return cls(path, _locked(path, _NEW), is_new=True)

    @classmethod
    def reopen(cls, path: Path) -> Pack:
        """One that has room left. Raises BlockingIOError if somebody else is filling it."""
        return cls(path, _locked(path, _OLD), is_new=False)

    def append(self, data: bytes | memoryview | Bytes) -> int:
        """Where it starts."""
        start = self.size
        write_all(self._descriptor, memoryview(data))
        self.size += len(data)
        return start

    def take_copy(self, source: int) -> None:
        """Make an empty pack a copy of a whole file, sharing its blocks where that can be."""
        if not share_blocks(source, self._descriptor):
            start = 0
            while copied := os.sendfile(self._descriptor, source, start, _COPIED_AT_A_TIME):
                start += copied
        self.size = os.fstat(self._descriptor).st_size

    def close(self) -> None:
        os.close(self._descriptor)

    def discard(self) -> None:
        """Close it without what was added by us: nobody will know of that."""
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
    """Remove what dead writers left. ``known`` is asked again once a pack's lock is ours."""
    for name in {path.name for path in directory.glob(f"*{SUFFIX}")} - known():
        with suppress(OSError):
            pack = Pack.reopen(directory / name)
            try:
                # Its writer may have ended well between our two looks.
                if name not in known():
                    (directory / name).unlink()
            finally:
                pack.close()


def bytes_of(directory: Path, names: Iterable[str] | None = None) -> int:
    """What these packs take, or all there are."""
    total = 0
    for path in directory.glob(f"*{SUFFIX}") if names is None else map(directory.joinpath, names):
        with suppress(OSError):
            total += path.stat().st_size
    return total


def remove(directory: Path, names: list[str]) -> None:
    for name in names:
        with suppress(OSError):
            (directory / name).unlink()


# --- What one download brings, on its way into packs ---
PACK_BYTES = 64 << 20


class CacheWriter:
    """Objects are added by any thread. The first thing that goes wrong ends it, silently."""

    def __init__(self, directory: Path, index: Index, copier: BackgroundCopier, limit: int) -> None:
        self._directory = directory
        self._copier = copier
        self._index = index
        self._limit = limit
        # Packs go as a whole, so there have to be several of them within the limit.
        self._pack_bytes = min(PACK_BYTES, limit // 8)
        self._guard = threading.Lock()
        self._pack: Pack | None = None
        self._places: list[tuple[ObjectEntry, PackPosition]] = []
        self._over = False

    def add(self, entry: ObjectEntry, data: bytes | Bytes, sha256: str) -> None:
        """Keep a small object."""
        if self._over or not self._wants(entry):
            return
        with self._guard:
            try:
                self._append(entry, data, sha256)
            except (OSError, PeragoError):
                self._give_up()

    def add_file(self, entry: ObjectEntry, source: int, sha256: str) -> None:
        """Keep a large object, from the open file it was written to: later, while others go on.

        Whoever has the file by then may change it. What is kept of it isn't the object, in that
        case, and is found out when it is to be delivered.
        """
        if self._over or not self._wants(entry):
            return
        with suppress(OSError):
            duplicate = os.dup(source)
            self._copier.do(lambda: self._copy(entry, duplicate, sha256))

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
        """Make known what isn't yet."""
        with self._guard:
            try:
                self._commit_open_pack()
            except (OSError, PeragoError):
                self._give_up()

    def _wants(self, entry: ObjectEntry) -> bool:
        return bool(entry.location) and entry.size <= self._limit // 4

    def _append(self, entry: ObjectEntry, data: bytes | Bytes, sha256: str) -> None:
        if self._over:
            return
        if self._pack is None:
            self._pack = self._open_pack()
        start = self._pack.append(data)
        self._places.append((entry, PackPosition(self._pack.name, start, sha256)))
        if self._pack.size >= self._pack_bytes:
            self._commit_open_pack()

    def _open_pack(self) -> Pack:
        """One with much room left, so that many small downloads don't leave as many files."""
        name = self._index.roomy_pack(self._pack_bytes // 2)
        if name is not None:
            with suppress(OSError):  # it is being filled by another process, or gone
                return Pack.reopen(self._directory / name)
        return Pack.create(self._directory)

    def _commit_open_pack(self) -> None:
        if self._pack is not None:
            self._commit(self._pack, self._places)
            self._pack.close()
            self._pack, self._places = None, []

    def _commit(self, pack: Pack, places: list[tuple[ObjectEntry, PackPosition]]) -> None:
        gone = self._index.add(pack.name, pack.size, places, limit=self._limit)
        remove(self._directory, gone)

    def _give_up(self) -> None:
        self._over = True
        if self._pack is not None:
            with suppress(OSError):
                self._pack.discard()
            self._pack = None
