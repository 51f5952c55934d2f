"""An execution's own directory, and what is left of those whose process died.

The task's files are in a subdirectory. Beside it is a marker, a file that says which execution and
branches the directory belongs to. The execution's process keeps the marker locked, so an unlocked
one is a leftover.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from perago.errors import BranchNotFoundError, RepositoryNotFoundError, RuntimeConfigError
from perago.file_lock import is_locked, try_lock
from perago.model.workspace import MARKER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.attempt import Execution
    from perago.model.workspace import WorkspaceRef
    from perago.ports.store import Store


NAMELESS_SECONDS = 60.0
"""How long a directory may be without its marker while it is being created or removed."""
_FILES = "files"
_UNNAMED_MARKER = f"{MARKER_NAME}.new"
_ENTRIES = frozenset({_FILES, MARKER_NAME, _UNNAMED_MARKER})
_NAME = re.compile(r"[A-Za-z0-9_-]+-[0-9a-f]{32}")
_REMOVING_THREADS = 2


@dataclass(frozen=True, slots=True)
class AttemptDirectory:
    """A living execution's directory; ``lock`` is the descriptor that locks its marker."""

    path: Path
    lock: int

    @classmethod
    def create(cls, root: Path, execution: Execution, workspace: WorkspaceRef) -> AttemptDirectory:
        """Raises RuntimeConfigError if the root can't be written or the directory exists."""
        path = root / execution.directory_name
        try:
            root.mkdir(parents=True, exist_ok=True)
            path.mkdir()
            lock = _fill(path, _marker_of(execution, workspace))
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
        """Remove the task's files, and leave the marker to name a branch that may remain."""
        try:
            _remove_files(self.path / _FILES)
        finally:
            os.close(self.lock)

    def remove(self) -> None:
        """Remove the directory. The lock is released last, when nothing is left."""
        try:
            _remove_marker_last(self.path)
        finally:
            os.close(self.lock)


def _fill(path: Path, marker: dict[str, object]) -> int:
    """Create what belongs into the directory; return the descriptor that locks the marker."""
    try:
        (path / _FILES).mkdir()
        return _write_marker(path, marker)
    except OSError:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _write_marker(path: Path, content: dict[str, object]) -> int:
    # Locked and written before it gets its name, so that cleanup never sees it unlocked.
    unnamed = path / _UNNAMED_MARKER
    lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try_lock(lock)  # always free: no other process knows the file yet
        with os.fdopen(lock, "wb", closefd=False) as file:
            file.write(json.dumps(content, indent=1).encode())
        unnamed.rename(path / MARKER_NAME)
    except OSError:
        os.close(lock)
        raise
    return lock


def _marker_of(execution: Execution, workspace: WorkspaceRef) -> dict[str, object]:
    return {
        "execution_id": execution.id,
        "branches": execution.branches,
        "pid": os.getpid(),
        **workspace.model_dump(),
        **asdict(execution.attempt),
    }


def _fix_for(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free some space, or point PERAGO_WORKSPACE_ROOT at a disk that has enough"
    return "point PERAGO_WORKSPACE_ROOT at a directory this user can write"


@dataclass(frozen=True, slots=True)
class Leftover:
    """A directory whose process is gone, and the branches that process may have created."""

    path: Path
    execution_id: str
    repository: str
    branches: tuple[str, ...]


def leftovers(root: Path) -> Iterator[Leftover]:
    """Attempt directories below ``root`` that no living process holds.

    Anything else below ``root`` is skipped. A directory without a readable marker was being created
    or removed when its process died; it counts once it is :data:`NAMELESS_SECONDS` old.
    """
    for path in sorted(root.glob("*/")):
        marker = path / MARKER_NAME
        if not _is_attempt_directory(path) or is_locked(marker):
            continue
        content = _read(marker)
        if content or _untouched_for(path) > NAMELESS_SECONDS:
            yield Leftover(
                path,
                content.get("execution_id", ""),
                content.get("repository", ""),
                tuple(content.get("branches", ())),
            )


def collect(store: Store, leftover: Leftover) -> bool:
    """Delete its branches, then its directory; return whether the directory is gone.

    In that order: after a crash in between, the directory still names the branches. Raises
    StoreError.
    """
    for branch in leftover.branches:
        with suppress(BranchNotFoundError, RepositoryNotFoundError):
            store.delete_branch(leftover.repository, branch)
    with suppress(OSError):  # the next cleanup finds it, or another process was quicker
        _remove_marker_last(leftover.path)
    return not leftover.path.exists()


def _is_attempt_directory(path: Path) -> bool:
    """Whether it is named and filled as :meth:`AttemptDirectory.create` does."""
    try:
        inside = {entry.name for entry in path.iterdir()}
    except OSError:
        return False
    return bool(_NAME.fullmatch(path.name)) and inside <= _ENTRIES


def _read(marker: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(marker.read_bytes())
    except (OSError, ValueError):
        return {}
    return content


def _untouched_for(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # its owner has just removed it
        return 0.0


def _remove_marker_last(path: Path) -> None:
    """Remove an attempt's directory; after a crash half way, the marker is still there."""
    _remove_files(path / _FILES)
    shutil.rmtree(path)


def _remove_files(files: Path) -> None:
    try:
        _remove_tree(files)
    except FileNotFoundError:
        pass
    except PermissionError:  # the task made directories read-only
        _make_writable(files)
        _remove_tree(files)


def _make_writable(directory: Path) -> None:
    directory.chmod(0o700)
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _make_writable(directory / entry.name)


def _remove_tree(directory: Path) -> None:
    """Remove a directory and all below it, level by level, two folders at a time.

    ``shutil.rmtree`` takes longer, with one thread and with two: see decision 16.
    """
    level, seen = [str(directory)], []
    with ThreadPoolExecutor(_REMOVING_THREADS) as pool:
        while level:
            seen += level
            level = [folder for folders in pool.map(_unlink_files, level) for folder in folders]
    for folder in reversed(seen):
        os.rmdir(folder)  # noqa: PTH106 - plain strings, as below


def _unlink_files(folder: str) -> list[str]:
    """Remove the files of one folder; return the folders in it. Follows no symlink."""
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
