"""Steps 2 and 12: an execution's own directory, with a marker that says whose it is.

The workspace's files live in a directory below it, so the marker is never among them. The marker
stays locked while its process lives; that is how a collector tells a leftover from work going on.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.model.keys import MARKER_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from perago.model.attempt import Execution
    from perago.model.workspace import WorkspaceRef

_FILES = "files"
_REMOVING_THREADS = 2
_UNNAMED_MARKER = f"{MARKER_NAME}.new"
_FURNITURE = frozenset({_FILES, MARKER_NAME, _UNNAMED_MARKER})
_OUR_NAME = re.compile(r"[A-Za-z0-9_-]+-[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class AttemptDirectory:
    path: Path
    lock: int

    @classmethod
    def create(cls, root: Path, execution: Execution, workspace: WorkspaceRef) -> AttemptDirectory:
        """Raises RuntimeConfigError if the root can't be written."""
        path = root / execution.directory_name
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            lock = _furnish(path, _marker(execution, workspace))
        except OSError as error:
            raise RuntimeConfigError(
                f"can't make the attempt's directory {path}: {error.strerror}",
                fix=_fix_for(error),
            ) from error
        return cls(path, lock)

    @property
    def files(self) -> Path:
        """Where the task's workspace is."""
        return self.path / _FILES

    def leave(self) -> None:
        """Remove the workspace, and leave the marker to whoever collects the branch it names."""
        try:
            _remove_files(self.path / _FILES)
        finally:
            os.close(self.lock)

    def remove(self) -> None:
        """Remove it with all that is in it. The lock is given up last, when nothing is left."""
        try:
            remove_marker_last(self.path)
        finally:
            os.close(self.lock)


def is_attempt_directory(path: Path) -> bool:
    """Whether it is named and furnished as :meth:`AttemptDirectory.create` does."""
    try:
        inside = {entry.name for entry in path.iterdir()}
    except OSError:
        return False
    return bool(_OUR_NAME.fullmatch(path.name)) and inside <= _FURNITURE


def remove_marker_last(path: Path) -> None:
    """Remove an attempt's directory; cut off half way, it still says whose it was."""
    _remove_files(path / _FILES)
    shutil.rmtree(path)


def _remove_files(files: Path) -> None:
    try:
        _remove_tree(files)
    except FileNotFoundError:
        pass
    except PermissionError:  # the task took away its own permission to remove what it made
        _make_writable(files)
        _remove_tree(files)


def _remove_tree(directory: Path) -> None:
    """Remove a directory and all below it, level by level.

    Two folders at a time, and no more Python per file than needs be: the system's part can run
    side by side, and it is what removing many files takes.
    """
    level, seen = [str(directory)], []
    with ThreadPoolExecutor(_REMOVING_THREADS) as pool:
        while level:
            seen += level
            level = [folder for folders in pool.map(_unlink_files, level) for folder in folders]
    for folder in reversed(seen):
        os.rmdir(folder)  # noqa: PTH106 - plain strings, as below


def _unlink_files(folder: str) -> list[str]:
    """Remove the files of one folder; the folders that are in it."""
    folders = []
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as entries:
            for entry in list(entries):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}/{entry.name}")
                else:
                    os.unlink(entry.name, dir_fd=descriptor)
    finally:
        os.close(descriptor)
    return folders


def _make_writable(directory: Path) -> None:
    directory.chmod(0o700)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _make_writable(directory / entry.name)


def _furnish(path: Path, marker: dict[str, object]) -> int:
    """Put in the room for files and the marker; the descriptor that holds the marker's lock."""
    try:
        (path / _FILES).mkdir()
        return _write_marker(path, marker)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _write_marker(path: Path, content: dict[str, object]) -> int:
    # Locked and written before it gets its name: a collector never sees it unheld.
    unnamed = path / _UNNAMED_MARKER
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with os.fdopen(lock, "wb", closefd=False) as file:
            file.write(json.dumps(content, indent=1).encode())
        unnamed.rename(path / MARKER_NAME)
    except OSError:
        os.close(lock)
        raise
    return lock


def _marker(execution: Execution, workspace: WorkspaceRef) -> dict[str, object]:
    return {
        "execution_id": execution.id,
        "branches": execution.branches,
        "pid": os.getpid(),
        **workspace.model_dump(),
        **asdict(execution.attempt),
    }


def _fix_for(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some room, or point PERAGO_WORKSPACE_ROOT at a disk that has it"
    return "point PERAGO_WORKSPACE_ROOT at a directory this user can write"
