"""What the disk can refuse, told as this project's errors, and names put on it for good."""

from __future__ import annotations

import errno
import os
from itertools import takewhile
from typing import TYPE_CHECKING

from perago.errors import StoreFullError, StoreUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from perago.errors import StoreError

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
