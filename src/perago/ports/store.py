"""The versioned store: repositories of immutable commits, and branches that point at them.

Two rules hold for every method. A *read* raises :class:`StoreUnavailableError` when it couldn't
be answered and may be tried again. A *mutation* is sent once: it returns when it was applied,
raises :class:`StoreRefusedError` (or a more exact error) when it certainly wasn't, and
:class:`AnswerLostError` when there is no telling. Adapters never retry a branch mutation by
themselves.

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
    # --- repositories and history -------------------------------------------------------------
    def create_repository(self, repository: str, *, default_branch: str = "main") -> Commit:
        """Create it with one empty root commit on its default branch, and return that commit.

        Raises RepositoryExistsError.
        """
        ...

    def repositories(self) -> list[str]: ...

    def new_branch_source(self, repository: str) -> str | None:
        """The branch that a new branch starts from by default; None if it starts empty.

        Raises RepositoryNotFoundError.
        """
        ...

    def get_commit(self, repository: str, ref: str) -> Commit:
        """Raises RepositoryNotFoundError, or CommitNotFoundError if it is neither id nor branch."""
        ...

    def history(self, repository: str, ref: str, *, limit: int | None = None) -> Iterator[Commit]:
        """First-parent history, newest first, starting with ref itself."""
        ...

    @property
    def outlives_callers(self) -> bool:
        """Whether a request may still be applied after the process that sent it has died."""
        ...

    def atomicity(self, repository: str, ref: str, *, trial: str | None = None) -> Atomicity:
        """What the store can do in one step for a merge whose commits look like ``ref``.

        On lakeFS this depends on the hook being in the commit; elsewhere it may be constant.
        A store that has to try it out does so on a branch named ``trial``, and deletes that; the
        caller sees to one that a crash leaves behind.
        """
        ...

    # --- branches ------------------------------------------------------------------------------
    def head(self, repository: str, branch: str) -> Commit:
        """Raises RepositoryNotFoundError or BranchNotFoundError."""
        ...

    def branches(self, repository: str, *, prefix: str = "") -> Iterator[Branch]:
        """All branches whose name starts with ``prefix``, hidden ones included, by name."""
        ...

    def create_branch(self, repository: str, branch: str, at: str, *, hidden: bool = False) -> None:
        """Atomic. Raises BranchExistsError or CommitNotFoundError."""
        ...

    def delete_branch(self, repository: str, branch: str, *, timeout: float | None = None) -> None:
        """Remove it and what it has uncommitted. Raises BranchNotFoundError."""
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

        What a cache on this machine has needn't be brought again, and doesn't count as moved.

        Every byte is hashed on the way. Raises CorruptObjectError, naming the key, if an object's
        bytes aren't the ones that were stored, as far as the store's own checksum tells. What it
        wrote before an error is left behind.
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

        Raises WorkspaceChangedError if a file's signature isn't the given one, before or after it
        was read. Returns what was really moved: bytes the store already has don't count.
        """
        ...

    def holds(self, entry: ObjectEntry, path: Path) -> bool:
        """Whether the object has the bytes of this file, unharmed; False if there is no telling.

        The file has the object's size. Raises OSError.
        """
        ...

    def delete_objects(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        """Remove objects from a branch, uncommitted. A key that isn't there is not an error."""
        ...

    def uncommitted(self, repository: str, branch: str, *, limit: int | None = 10) -> list[str]:
        """Up to ``limit`` keys that differ between the branch and its head; None for all."""
        ...

    def diff(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[Difference]:
        """How two refs differ, in key order, at a cost in proportion to the difference."""
        ...

    def changed_keys(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[tuple[str, DifferenceKind]]:
        """As :meth:`diff`, but without the objects: they may cost a request each."""
        ...

    # --- the three ways a branch moves -----------------------------------------------------------
    def commit(
        self, repository: str, branch: str, *, message: str, metadata: Mapping[str, str]
    ) -> Commit:
        """Turn what is uncommitted into a commit whose only parent is the head.

        Refused (StoreRefusedError) if nothing is uncommitted: there are no empty commits.
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
        the head is by then, as lakeFS does. A conflict is a StoreRefusedError.
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
        """Point ``branch`` at the commit ``to``, whatever that does to its history.

        With ``expected_head`` (only where ``cas_relocate``) as for :meth:`merge`. Uncommitted
        objects stay visible on top of the new head: callers look for them first.
        """
        ...
