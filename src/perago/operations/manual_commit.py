"""A user's change to a branch: one commit on top of the head that was read, or nothing."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import PublishUnknownError, StoreError, StoreRefusedError, WrongLandingError
from perago.flow.publish import SEARCH_LIMIT
from perago.model.attempt import STAGING_PREFIX, new_execution_id
from perago.model.commit import EXPECTED_HEAD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from perago.model.commit import Commit
    from perago.model.workspace import ChangeSet
    from perago.ports.store import OnTransfer, Store


@dataclass(frozen=True, slots=True)
class ManualCommit:
    """A commit to create on ``head`` of a branch.

    ``what`` names it in branch names and errors ("import"); ``key`` is the metadata key that only
    this kind of commit carries.
    """

    store: Store
    repository: str
    branch: str
    head: Commit
    what: str
    key: str
    message: str

    def commit(
        self,
        changes: ChangeSet,
        *,
        progress: OnTransfer | None = None,
        before_publishing: Callable[[], None] | None = None,
    ) -> Commit | None:
        """Publish ``changes`` as the only child of the head; None if they change nothing.

        ``before_publishing`` is called last and may raise to prevent the publication. Raises
        HeadMovedError if the branch has moved (it is then unchanged), WrongLandingError if a store
        without compare-and-swap put the commit on another head, and PublishUnknownError if the
        store's answer was lost.
        """
        store, repository = self.store, self.repository
        with self._staging_branch() as (staging, identity):
            store.upload(repository, staging, changes.uploads, progress)
            store.delete_objects(repository, staging, changes.deletes)
            if not store.uncommitted(repository, staging, limit=1):
                return None
            metadata = {
                self.key: identity,
                "perago.input_ref": self.head.id,
                EXPECTED_HEAD_KEY: self.head.id,  # a fence refuses every merge without it
            }
            staged = store.commit(repository, staging, message=self.message, metadata=metadata)
            if before_publishing is not None:
                before_publishing()
            landed = self._merge(staged, metadata)
        if not landed.is_only_child_of(self.head.id) or landed.tree != staged.tree:
            raise WrongLandingError(
                f"the {self.what} landed as {landed.id} on {', '.join(landed.parents)}, not on "
                f"{self.head.id}: another process wrote to {self.branch!r} at that moment",
                fix=f"look at `perago history {self.branch} --repository {repository}`",
            )
        return landed

    def _merge(self, staged: Commit, metadata: Mapping[str, str]) -> Commit:
        compares = self.store.atomicity(self.repository, staged.id).cas_merge
        try:
            return self.store.merge(
                self.repository,
                staged.id,
                self.branch,
                expected_head=self.head.id if compares else None,
                message=self.message,
                metadata=metadata,
            )
        except StoreError as error:
            return self._read_back(metadata[self.key], error)

    def _read_back(self, identity: str, error: StoreError) -> Commit:
        """Our commit, if it landed in spite of ``error``, which a repeated request may get."""
        try:
            for commit in self.store.history(self.repository, self.branch, limit=SEARCH_LIMIT):
                if commit.metadata.get(self.key) == identity:
                    return commit
                if commit.id == self.head.id:
                    break
        except StoreError as unreadable:
            raise self._unknown(f"{error.message}; {unreadable.message}") from error
        if isinstance(error, StoreRefusedError):
            raise error
        raise self._unknown(error.message) from error

    def _unknown(self, why: str) -> PublishUnknownError:
        return PublishUnknownError(
            f"unknown whether the {self.what} was published to {self.branch!r}: {why}",
            fix="run it again: it is safe, and changes nothing if it was published; "
            "`perago history` shows the branch",
        )

    @contextmanager
    def _staging_branch(self) -> Iterator[tuple[str, str]]:
        """A hidden branch and its identity, deleted afterwards; after a crash by `perago gc`."""
        identity = new_execution_id()
        name = f"{STAGING_PREFIX}{self.what.replace(' ', '-')}-exec-{identity}"
        try:
            self.store.create_branch(self.repository, name, self.head.id, hidden=True)
            yield name, identity
        finally:
            with suppress(StoreError):  # the publication stands, and `perago gc` deletes the branch
                self.store.delete_branch(self.repository, name)
