"""What the disk can refuse, told as this project's errors, and the two ways to hold the store.

Everything that writes below the store's root turns its ``OSError`` or ``sqlite3.Error`` into an
error here, so that a full disk reads the same wherever it was met.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.errors import (
    AnswerLostError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY_IN = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
)
_LOCK_POLL_SECONDS = 0.02


def write_failure(path: str | os.PathLike[str], error: OSError) -> StoreError:
    """The error for a write to ``path`` that the operating system refused."""
    said = f"can't write {os.fspath(path)!r}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return StoreFullError(
            said, fix="free space or raise the quota on that filesystem, then try again"
        )
    if error.errno in _NO_WAY_IN:
        return StoreFullError(
            said, fix="make that path a directory this user may write to, or choose another one"
        )
    return StoreUnavailableError(said, fix="check that filesystem (dmesg, mount), then try again")


def database_failure(
    path: str | os.PathLike[str], error: sqlite3.Error, *, committing: bool = False
) -> StoreError:
    """The error for a statement on the database at ``path`` that SQLite refused.

    ``committing`` says that it was the COMMIT itself: if the disk failed there, the transaction's
    last frame may be on it, and a later recovery may still find it.
    """
    said = f"{os.fspath(path)!r}: {error}"
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailableError(
            f"another process held the store for too long: {said}",
            fix="find what is writing to the store, or try again",
        )
    if code == sqlite3.SQLITE_IOERR and committing:
        return AnswerLostError(
            f"the disk failed while a commit was being written: {said}",
            fix="check that filesystem, then look at the branch: the change may be there or not",
        )
    if code in (
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PERM,
    ):
        return StoreFullError(
            f"can't write the store's database {said}",
            fix="free space on that filesystem and let this user write there, then try again",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreFormatError(
            f"the store's database can't be read: {said}",
            fix="restore the store's directory from a backup, or choose another one",
        )
    return StoreError(f"the store's database failed: {said}")


def sync_directory(path: str) -> None:
    """Put a directory's entries on disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_failure(path, error) from error


@contextmanager
def held(path: str, *, exclusive: bool, wait_seconds: float, purpose: str) -> Iterator[None]:
    """Hold the file lock at ``path``, shared by writers and exclusive to the one who sweeps.

    The kernel gives it up when its holder dies, so a killed process never blocks the store.
    Raises :class:`StoreUnavailableError` if it wasn't to be had within ``wait_seconds``.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_failure(path, error) from error
    try:
        _wait_for(descriptor, path, exclusive=exclusive, wait_seconds=wait_seconds, purpose=purpose)
        yield
    finally:
        os.close(descriptor)


def _wait_for(
    descriptor: int, path: str, *, exclusive: bool, wait_seconds: float, purpose: str
) -> None:
    mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_LOCK_POLL_SECONDS)
                continue
            holder = "uploads are going on" if exclusive else "garbage collection is going on"
            raise StoreUnavailableError(
                f"{purpose} waited {wait_seconds:g} s for {path!r}: {holder}",
                fix="try again when that has ended",
            ) from None
        return
