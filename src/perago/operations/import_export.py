"""Imports a directory as one commit, and exports a commit's files into a directory."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError, UnsupportedFileError
from perago.model.commit import ACTIONS_PREFIX, IMPORT_KEY
from perago.model.workspace import ChangeSet, WorkspaceRef, key_prefix, problem_with
from perago.operations.branches import head_or_new
from perago.operations.manual_commit import ManualCommit
from perago.wiring import local_engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.model.progress import Transfer
    from perago.operations.branches import OwnBranches
    from perago.ports.store import OnTransfer, Store


def import_directory(
    store: Store,
    *,
    repository: str,
    branch: str,
    directory: Path,
    prefix: str = "/",
    message: str | None = None,
    progress: OnTransfer | None = None,
    before_publishing: Callable[[], None] | None = None,
    start_at: str | None = None,
    own: OwnBranches | None = None,
) -> Commit | None:
    """Make what the branch has below ``prefix`` equal to the directory's files.

    Returns the commit that does it, the only child of the branch's head; None if the content is
    the same already. Content that the store has isn't uploaded again. A missing repository or
    branch is created once every file has been found storable. A new branch starts at the ref
    ``start_at``, or empty, and becomes one of ``own``. ``before_publishing`` and other errors are
    those of :meth:`ManualCommit.commit`.

    Raises UnsupportedFileError or UnsafeKeyError for a file that can't be stored; the branch is
    then unchanged.
    """
    start = key_prefix(checked_prefix(prefix))
    files = _scan(directory, prefix)
    prepare = own.any_head_or_new if own else head_or_new
    head = prepare(store, repository, branch, start_at=start_at)
    changes = _differences(store, repository, head, start, files)
    if not changes:
        return None
    text = message or f"import of {directory.resolve().name or 'a directory'}"
    manual = ManualCommit(store, repository, branch, head, "import", IMPORT_KEY, text)
    return manual.commit(changes, progress=progress, before_publishing=before_publishing)


def checked_prefix(prefix: str) -> str:
    """The prefix itself. Raises RuntimeConfigError if it can't name a directory."""
    path = prefix.strip("/")
    problem = problem_with(path) if path else None
    if f"{path}/".startswith(ACTIONS_PREFIX):
        problem = f"{ACTIONS_PREFIX} holds the repository's hooks, never files of a workspace"
    if problem:
        raise RuntimeConfigError(
            f"prefix {prefix!r} can't be a directory of a repository: {problem}",
            fix="give a relative path such as 'songs/raw', or '/' for the whole repository",
        )
    return prefix


def _scan(directory: Path, prefix: str) -> ChangeSet:
    if not directory.is_dir():
        raise RuntimeConfigError(
            f"{str(directory)!r} is not a directory", fix="name the directory to import"
        )
    try:
        return local_engine().scan(directory, prefix)
    except UnsupportedFileError as error:
        raise UnsupportedFileError(
            f"{directory}: {error.message}",
            fix="remove or replace it, or import a directory without it",
        ) from None


def _differences(
    store: Store, repository: str, head: Commit, start: str, files: ChangeSet
) -> ChangeSet:
    """The changes that make the branch below the prefix equal to the files."""
    wanted = {upload.key: upload for upload in files.uploads}
    superfluous = []
    for entry in store.list_objects(repository, head.id, prefix=start):
        upload = wanted.get(entry.key)
        if upload is None:
            superfluous.append(entry.key)
        elif upload.signature.size == entry.size and store.holds(entry, upload.path):
            del wanted[entry.key]
    deletes = tuple(key for key in superfluous if not key.startswith(ACTIONS_PREFIX))
    return ChangeSet(tuple(wanted.values()), deletes)


def export_commit(
    store: Store,
    *,
    repository: str,
    commit: Commit,
    directory: Path,
    prefix: str = "/",
    progress: OnTransfer | None = None,
) -> Transfer:
    """Write the objects below ``prefix`` into a new or empty directory, with checksums verified.

    Raises RuntimeConfigError if the directory isn't empty, UnsafeKeyError before anything is
    written if a key can't be a file name, and CorruptObjectError. After an error the directory is
    as it was before.
    """
    created = _prepare(directory)
    workspace = WorkspaceRef(
        repository=repository, branch=commit.id, ref_type="commit", ref=commit.id
    )
    try:
        return local_engine().open(store, workspace, prefix, directory, progress).fetched
    except BaseException:
        _empty(directory)
        if created:
            directory.rmdir()
        raise


def _prepare(directory: Path) -> bool:
    """Make sure that it exists and is empty; return whether it was created."""
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
