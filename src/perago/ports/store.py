"""The versioned store: repositories of immutable commits, and branches that point at them.

Two rules hold for every method. A *read* raises :class:`StoreUnavailableError` if the store didn't
answer; it may be repeated. A *mutation* is sent once. It returns if it was applied, raises
:class:`StoreRefusedError` (or a more exact error) if it certainly wasn't, and
:class:`AnswerLostError` if that is unknown. Adapters never repeat a mutation of a branch.

A ``ref`` is a commit id or a branch name; a ``branch`` is a branch name only. Keys are compared by
code point, and listings come in that order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.model.commit import (
        Atomicity,
        Branch,
        Commit,
        Difference,
        DifferenceKind,
        ObjectEntry,
    )
    from perago.model.progress import Transfer
    from perago.model.workspace import Download, Fetched, Upload

    OnTransfer = Callable[[Transfer], None]
    """Called with the running totals of a transfer, from one thread at a time."""


class Store(Protocol):
    """All that Perago asks of a versioned store."""

    # --- repositories and history -------------------------------------------------------------
    def create_repository(self, repository: str, *, default_branch: str = "main") -> Commit:
        """Create it with an empty root commit on its default branch; return that commit.

        Raises RepositoryExistsError.
        """
        ...

    def repositories(self) -> list[str]:
        """The names of all repositories."""
        ...

    def new_branch_source(self, repository: str) -> str | None:
        """The branch that a new branch starts from by default; None if it starts empty.

        Raises RepositoryNotFoundError.
        """
        ...

    def get_commit(self, repository: str, ref: str) -> Commit:
        """The commit that ``ref`` stands for.

        Raises RepositoryNotFoundError, or CommitNotFoundError if it is neither id nor branch.
        """
        ...

    def history(self, repository: str, ref: str, *, limit: int | None = None) -> Iterator[Commit]:
        """First-parent history, newest first, starting with ``ref`` itself."""
        ...

    @property
    def outlives_callers(self) -> bool:
        """Whether a request may still be applied after the process that sent it has died."""
        ...

    def atomicity(self, repository: str, ref: str, *, trial: str | None = None) -> Atomicity:
        """Whether the store can compare and swap, for commits with the same actions as ``ref``.

        On lakeFS this depends on the hook in the commit; for other stores it may be constant. A
        store that has to try it out uses a branch named ``trial``, and deletes it. The caller
        deletes one that a crash leaves behind.
        """
        ...

    # --- branches ------------------------------------------------------------------------------
    def head(self, repository: str, branch: str) -> Commit:
        """The commit that the branch points at.

        Raises RepositoryNotFoundError or BranchNotFoundError.
        """
        ...

    def branches(self, repository: str, *, prefix: str = "") -> Iterator[Branch]:
        """All branches whose name starts with ``prefix``, hidden ones included, by name."""
        ...

    def create_branch(self, repository: str, branch: str, at: str, *, hidden: bool = False) -> None:
        """Create a branch at a commit, atomically; a ``hidden`` one isn't shown to people.

        Raises BranchExistsError or CommitNotFoundError.
        """
        ...

    def delete_branch(self, repository: str, branch: str, *, timeout: float | None = None) -> None:
        """Delete it with its uncommitted objects. Raises BranchNotFoundError."""
        ...

    # --- objects -------------------------------------------------------------------------------
    def list_objects(self, repository: str, ref: str, *, prefix: str = "") -> Iterator[ObjectEntry]:
        """Objects whose key starts with ``prefix``, by key; a branch's uncommitted ones too."""
        ...

    def download(
        self,
        repository: str,
        ref: str,
        wanted: Sequence[Download],
        progress: OnTransfer | None = None,
    ) -> Fetched:
        """Write each object to its path, in parallel, in bounded memory; results in any order.

        Objects from a cache on this machine don't count as moved.

        Every byte is hashed on the way. Raises CorruptObjectError, naming the key, if the bytes
        don't match the store's own checksum. What it wrote before an error is left behind.
        """
        ...

    def upload(
        self,
        repository: str,
        branch: str,
        files: Sequence[Upload],
        progress: OnTransfer | None = None,
    ) -> Transfer:
        """Put files on a branch, uncommitted, in parallel, in bounded memory; all or an error.

        Returns what was moved: bytes that the store already had don't count. Raises
        WorkspaceChangedError if a file's signature isn't the given one, before or after reading.
        """
        ...

    def holds(self, entry: ObjectEntry, path: Path) -> bool:
        """Whether the object has exactly the bytes of this file; False if that is unknown.

        The caller has compared the sizes. Raises OSError.
        """
        ...

    def delete_objects(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        """Remove objects from a branch, uncommitted. A missing key is not an error."""
        ...

    def uncommitted(self, repository: str, branch: str, *, limit: int | None = 10) -> list[str]:
        """Up to ``limit`` keys that differ between the branch and its head; None for all."""
        ...

    def diff(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[Difference]:
        """How two refs differ, in key order; the cost grows with the difference only."""
        ...

    def changed_keys(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[tuple[str, DifferenceKind]]:
        """Like :meth:`diff`, but without the objects, which may cost a request each."""
        ...

    # --- the three ways a branch moves -----------------------------------------------------------
    def commit(
        self, repository: str, branch: str, *, message: str, metadata: Mapping[str, str]
    ) -> Commit:
        """Commit the branch's uncommitted objects; the only parent is the head.

        Raises StoreRefusedError if nothing is uncommitted: there are no empty commits.
        """
        ...

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        *,
        expected_head: str | None,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> Commit:
        """Squash-merge the *commit* ``source``: one new commit whose only parent is the head.

        With ``expected_head`` (only where ``cas_merge``) it is applied if that is the head at that
        very moment, and refused with HeadMovedError otherwise. Without it, it lands on whatever
        the head is by then, as in lakeFS. Raises StoreRefusedError for a conflict.
        """
        ...

    def relocate(
        self,
        repository: str,
        branch: str,
        to: str,
        *,
        expected_head: str | None,
        timeout: float | None = None,
    ) -> None:
        """Point ``branch`` at the commit ``to``, even if that drops commits from its history.

        With ``expected_head`` (only where ``cas_relocate``) as for :meth:`merge`. Uncommitted
        objects stay visible on top of the new head, so callers check for them first.
        """
        ...
