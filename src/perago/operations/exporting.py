"""A commit's files, out of the store and into a directory of a person's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.model.workspace import WorkspaceRef
from perago.wiring import local_engine

if TYPE_CHECKING:
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.model.outcome import Transfer
    from perago.ports.store import Progress, Store


def export_commit(
    store: Store,
    *,
    repository: str,
    commit: Commit,
    directory: Path,
    prefix: str = "/",
    progress: Progress | None = None,
) -> Transfer:
    """Write the objects below ``prefix`` into a new or empty directory, every byte verified.

    Raises RuntimeConfigError if there is something in the directory, UnsafeKeyError before
    anything is written if a key can't be a file, and CorruptObjectError. After an error the
    directory is as it was found.
    """
    made = _prepare(directory)
    workspace = WorkspaceRef(
        repository=repository, branch=commit.id, ref_type="commit", ref=commit.id
    )
    try:
        return local_engine().open(store, workspace, prefix, directory, progress).fetched
    except BaseException:
        _empty(directory)
        if made:
            directory.rmdir()
        raise


def _prepare(directory: Path) -> bool:
    """Make sure that it exists and is empty; whether it had to be made."""
    try:
        if directory.exists():
            if not directory.is_dir() or any(directory.iterdir()):
                raise RuntimeConfigError(
                    f"{str(directory)!r} is not an empty directory",
                    fix="name a new or an empty directory: an export never writes over files",
                )
            return False
        directory.mkdir(parents=True)
    except OSError as error:
        raise RuntimeConfigError(
            f"can't write to {str(directory)!r}: {error.strerror}",
            fix="name a directory this user can write",
        ) from error
    return True


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
