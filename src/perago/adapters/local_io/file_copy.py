"""Copies between open files, hashed on the way in bounded memory, and durable directories.

A file to be stored is opened here too, and checked to be the file that was scanned.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
from itertools import takewhile
from typing import TYPE_CHECKING

from perago.errors import (
    StoreFullError,
    StoreUnavailableError,
    UnsupportedFileError,
    WorkspaceChangedError,
)
from perago.model.workspace import Signature

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perago.errors import StoreError
    from perago.model.workspace import Upload

    OnBytes = Callable[[int], None]
    """Called with the size of every piece that was copied."""


CHUNK = 1 << 20
"""How much is read and written at a time. Objects up to this size are held in memory whole."""

_FICLONE = 0x40049409  # linux/fs.h; the standard library has no name for it


def read_whole(source: int, size: int) -> bytes:
    """A small file's bytes, and one more than expected if it has grown."""
    data = os.read(source, size + 1)
    while len(data) < size and (more := os.read(source, size + 1 - len(data))):
        data += more
    return data


def write_all(target: int, data: bytes | memoryview) -> None:
    """Write every byte, in as many calls as the system needs."""
    written = os.write(target, data)
    while written < len(data):
        written += os.write(target, data[written:])


def copy_hashing(source: int, target: int, size: int, on_bytes: OnBytes) -> tuple[int, str]:
    """Copy all of ``source``; return how many bytes ``target`` got, and their sha256.

    Where two files can share blocks, a large file is not copied: the hash is then computed from
    the target, so it is always the hash of the bytes in it.
    """
    if size <= CHUNK:
        data = read_whole(source, size)
        write_all(target, data)
        on_bytes(len(data))
        return len(data), hashlib.sha256(data).hexdigest()
    if share_blocks(source, target):
        return hash_of(target, on_bytes)
    return _read_through(source, target, on_bytes)


def hash_of(source: int, on_bytes: OnBytes = lambda _count: None) -> tuple[int, str]:
    """The size and sha256 of an open file."""
    return _read_through(source, None, on_bytes)


def _read_through(source: int, target: int | None, on_bytes: OnBytes) -> tuple[int, str]:
    digest = hashlib.sha256()
    # A buffer of its full size costs more than reading a small file does.
    buffer = memoryview(bytearray(min(CHUNK, os.fstat(source).st_size + 1)))
    total = 0
    while count := os.preadv(source, [buffer], total):
        piece = buffer[:count]
        digest.update(piece)
        if target is not None:
            write_all(target, piece)
        total += count
        on_bytes(count)
    return total, digest.hexdigest()


def share_blocks(source: int, target: int) -> bool:
    """Make ``target`` a copy of ``source`` on the same blocks; False if this filesystem can't."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # not supported, two filesystems, or not Linux
        return False
    return True


# Without O_NONBLOCK, opening a pipe would wait for its writer.
_READ_ONLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_source(upload: Upload) -> int:
    """Open the file for reading; return its descriptor.

    Raises WorkspaceChangedError if it is gone, and UnsupportedFileError if it is not a regular file
    or can't be read.
    """
    try:
        source = os.open(upload.path, _READ_ONLY)
    except FileNotFoundError:
        raise changed_error(upload, "it is gone") from None
    except OSError as error:
        kind = "a symbolic link" if error.errno == errno.ELOOP else f"unreadable: {error.strerror}"
        raise _unsupported(upload, kind) from error
    if not stat.S_ISREG(os.fstat(source).st_mode):
        os.close(source)
        raise _unsupported(upload, "not a regular file")
    return source


def check_signature(upload: Upload, source: int) -> None:
    """Raise WorkspaceChangedError unless it still is the file that was checked."""
    if Signature.of(os.fstat(source)) != upload.signature:
        raise changed_error(upload, "its size, time or inode differs")


def changed_error(upload: Upload, how: str) -> WorkspaceChangedError:
    """The error for a file that is no longer the one that was checked."""
    return WorkspaceChangedError(
        f"{str(upload.path)!r} changed after it was checked: {how}",
        fix="make sure that nothing writes to the workspace after the task has returned",
    )


def _unsupported(upload: Upload, kind: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{str(upload.path)!r} can't be stored: it is {kind}",
        fix="leave only regular, readable files in the workspace",
    )


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_PERMITTED = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
)


def write_error(path: str | os.PathLike[str], error: OSError) -> StoreError:
    """The error for a write to ``path`` that the operating system refused."""
    message = f"can't write {os.fspath(path)!r}: {error.strerror or error}"
    if error.errno in _NO_ROOM:
        return StoreFullError(
            message, fix="free space or raise the quota on that filesystem, then try again"
        )
    if error.errno in _NOT_PERMITTED:
        return StoreFullError(
            message, fix="make that path a directory this user may write to, or choose another one"
        )
    return StoreUnavailableError(
        message, fix="check that filesystem (dmesg, mount), then try again"
    )


def make_directory(path: Path, *, durable: bool) -> None:
    """Make a directory and its missing parents; if ``durable``, flush their names to disk.

    Raises OSError.
    """
    missing = list(takewhile(lambda directory: not directory.is_dir(), (path, *path.parents)))
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        if durable:
            sync_directory(directory.parent)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Flush a directory's entries to disk. Raises StoreError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_error(path, error) from error
