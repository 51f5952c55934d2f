"""Bytes from one open file to another, hashed on the way, in bounded memory."""

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

    Moved = Callable[[int], None]
    """Told of every piece that was moved, with its size."""


# --- What the disk can refuse, told as this project's errors, and names put on it for good ---
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_WAY_IN = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
)


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


def make_directory(path: Path, *, durable: bool) -> None:
    """Make a directory and those it stands in; if ``durable``, all their names are on disk.

    Raises OSError.
    """
    missing = list(takewhile(lambda directory: not directory.is_dir(), (path, *path.parents)))
    for directory in reversed(missing):
        directory.mkdir(exist_ok=True)
        if durable:
            sync_directory(directory.parent)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Put a directory's entries on disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_failure(path, error) from error


CHUNK = 1 << 20
"""What is read and written at a time; an object of up to this size is held in memory whole."""
_FICLONE = 0x40049409  # linux/fs.h; the standard library has no name for it


def read_whole(source: int, size: int) -> bytes:
    """A small file's bytes: one read, and one byte more than expected, to see that it has grown."""
    data = os.read(source, size + 1)
    while len(data) < size and (more := os.read(source, size + 1 - len(data))):
        data += more
    return data


def write_all(target: int, data: bytes | memoryview) -> None:
    """Write every byte, in as many goes as the system takes."""
    written = os.write(target, data)
    while written < len(data):
        written += os.write(target, data[written:])


def copy_hashing(source: int, target: int, size: int, moved: Moved) -> tuple[int, str]:
    """Copy all of ``source``; returns how many bytes ``target`` got and their sha256.

    Where the filesystem can share the blocks of two files, a large file is not copied at all, and
    the hash is read back from the target: it is always of the bytes that are there.
    """
    if size <= CHUNK:
        data = read_whole(source, size)
        write_all(target, data)
        moved(len(data))
        return len(data), hashlib.sha256(data).hexdigest()
    if share_blocks(source, target):
        return hash_of(target, moved)
    return _pump(source, target, moved)


def hash_of(source: int, moved: Moved = lambda _count: None) -> tuple[int, str]:
    """The size and sha256 of an open file."""
    return _pump(source, None, moved)


def _pump(source: int, target: int | None, moved: Moved) -> tuple[int, str]:
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
        moved(count)
    return total, digest.hexdigest()


def share_blocks(source: int, target: int) -> bool:
    """Make ``target`` a copy of ``source`` that takes no room; False if that can't be done here."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # no such filesystem, two of them, or no Linux: the bytes are copied instead
        return False
    return True


# --- A file that was checked, opened to be stored: it has to be that file still ---
# Opening a pipe for reading would wait for somebody to write, were it not for O_NONBLOCK.
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_source(upload: Upload) -> int:
    """A descriptor to read it by.

    Raises WorkspaceChangedError if it is gone, UnsupportedFileError if it can't be read as a file.
    """
    try:
        source = os.open(upload.path, _LOOK)
    except FileNotFoundError:
        raise changed(upload, "it is gone") from None
    except OSError as error:
        kind = "a symbolic link" if error.errno == errno.ELOOP else f"unreadable: {error.strerror}"
        raise _unsupported(upload, kind) from error
    if not stat.S_ISREG(os.fstat(source).st_mode):
        os.close(source)
        raise _unsupported(upload, "not a regular file")
    return source


def check_signature(upload: Upload, source: int) -> None:
    """Raises WorkspaceChangedError unless it is, and has stayed, the file that was checked."""
    if Signature.of(os.fstat(source)) != upload.signature:
        raise changed(upload, "its size, time or inode is another")


def changed(upload: Upload, finding: str) -> WorkspaceChangedError:
    """The error for a file that isn't what was checked any more."""
    return WorkspaceChangedError(
        f"{str(upload.path)!r} changed after it was checked: {finding}",
        fix="make sure that nothing goes on writing to the workspace after the task has returned",
    )


def _unsupported(upload: Upload, kind: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{str(upload.path)!r} can't be stored: it is {kind}",
        fix="leave only regular, readable files in the workspace",
    )
