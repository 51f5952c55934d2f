"""A directory of a person's becomes the state of a branch, in one commit or not at all."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from perago.errors import (
    RuntimeConfigError,
    StoreError,
    UnsupportedFileError,
    WrongLandingError,
)
from perago.model.attempt import STAGING_PREFIX, new_execution_id
from perago.model.changes import ChangeSet
from perago.model.commit import ACTIONS_PREFIX, IMPORT_KEY
from perago.model.keys import key_prefix, problem_with
from perago.operations.branches import head_or_new
from perago.wiring import files_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.ports.store import Progress, Store


def import_directory(
    store: Store,
    *,
    repository: str,
    branch: str,
    directory: Path,
    prefix: str = "/",
    message: str | None = None,
    progress: Progress | None = None,
    before_publishing: Callable[[], None] | None = None,
) -> Commit | None:
    """Make what the branch has below ``prefix`` equal to the directory's files.

    Returns the one commit that does it, whose only parent is the head that was found; None if the
    content is the same already, and then nothing is committed. Bytes the store has aren't moved.
    A missing repository or branch is made, once the directory has proved fit to be stored.
    ``before_publishing`` may raise to stop it at the last moment.

    Raises UnsupportedFileError or UnsafeKeyError for what can't be stored, HeadMovedError if
    somebody else wrote to the branch meanwhile; either way the branch is as it was.
    """
    start = key_prefix(checked_prefix(prefix))
    files = _scan(directory, prefix)
    head = head_or_new(store, repository, branch)
    changes = _differences(store, repository, head, start, files)
    if not changes:
        return None
    with _staging_branch(store, repository, head.id) as staging:
        store.upload(repository, staging, changes.uploads, progress)
        store.delete_objects(repository, staging, changes.deletes)
        if not store.uncommitted(repository, staging, limit=1):
            return None
        words = message or f"import of {directory.resolve().name or 'a directory'}"
        metadata = {IMPORT_KEY: staging.rpartition("-")[2], "perago.input_ref": head.id}
        staged = store.commit(repository, staging, message=words, metadata=metadata)
        if before_publishing is not None:
            before_publishing()
        published = store.merge(
            repository,
            staged.id,
            branch,
            expected_head=head.id if store.atomicity(repository, head.id).cas_merge else None,
            message=words,
            metadata=metadata,
        )
    if not published.is_only_child_of(head.id):
        raise WrongLandingError(
            f"the import landed as {published.id} on {published.parents}, not on {head.id}",
            fix=f"look at `perago history {branch}`: somebody else wrote there at that moment",
        )
    return published


def checked_prefix(prefix: str) -> str:
    """The prefix itself. Raises RuntimeConfigError if it can't be a directory of a repository."""
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
        return files_of(directory, prefix)
    except UnsupportedFileError as error:
        raise UnsupportedFileError(
            f"{directory}: {error.message}",
            fix="remove or replace it, or import a directory without it",
        ) from None


def _differences(
    store: Store, repository: str, head: Commit, start: str, files: ChangeSet
) -> ChangeSet:
    """What it takes to make the branch below the prefix equal to the files."""
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


@contextmanager
def _staging_branch(store: Store, repository: str, at: str) -> Iterator[str]:
    """A hidden branch that is gone afterwards; one left by a crash is found by `perago gc`."""
    name = f"{STAGING_PREFIX}import-exec-{new_execution_id()}"
    store.create_branch(repository, name, at, hidden=True)
    try:
        yield name
    finally:
        with suppress(StoreError):  # what was published stands, and `perago gc` finds the branch
            store.delete_branch(repository, name)
