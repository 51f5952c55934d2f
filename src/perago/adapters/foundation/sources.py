"""A file that was checked, opened to be stored: it has to be that file still."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from perago.errors import UnsupportedFileError, WorkspaceChangedError
from perago.model.changes import Signature

if TYPE_CHECKING:
    from perago.model.changes import Upload

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
