"""Packs: files that objects are appended to, one after the other, and never changed otherwise.

Whoever fills a pack holds its lock until the index knows what is in it. So a pack that the index
doesn't know and nobody locks was left by a process that died.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from perago.adapters.foundation.copying import share_blocks, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from obstore import Bytes

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
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
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
