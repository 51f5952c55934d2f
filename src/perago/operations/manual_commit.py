"""A person's change to a branch: one commit on the head that was found, or nothing."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import (
    BranchBusyError,
    BranchExistsError,
    BranchNotFoundError,
    PublishUnknownError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    StoreError,
    StoreRefusedError,
    WrongLandingError,
)
from perago.flow.publish import SEARCH_LIMIT
from perago.model.attempt import STAGING_PREFIX, new_execution_id
from perago.model.commit import EXPECTED_HEAD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from perago.model.commit import Commit
    from perago.model.workspace import ChangeSet
    from perago.ports.orchestrator import Runs
    from perago.ports.store import OnTransfer, Store


# --- Where a branch stands before somebody starts writing to it ---


def head_or_new(
    store: Store, repository: str, branch: str, *, start_at: str | None = None
) -> Commit:
    """The branch's head; a missing repository is made, a missing branch begins at ``start_at``.

    Without that it begins empty.
    """
    try:
        return store.head(repository, branch)
    except RepositoryNotFoundError:
        with suppress(RepositoryExistsError):  # somebody else was quicker
            store.create_repository(repository, default_branch=branch)
    except BranchNotFoundError:
        with suppress(BranchExistsError):
            create_branch(store, repository, branch, start_at)
    return head_or_new(store, repository, branch, start_at=start_at)


def create_branch(store: Store, repository: str, branch: str, start_at: str | None) -> str:
    """Make it at a ref, or empty; the commit it begins at. Raises BranchExistsError."""
    at = store.get_commit(repository, start_at).id if start_at else _root_of(store, repository)
    store.create_branch(repository, branch, at)
    return at


def _root_of(store: Store, repository: str) -> str:
    """The repository's empty first commit: what a branch nobody has seen starts from."""
    anywhere = next(iter(store.branches(repository)))
    *_, root = store.history(repository, anywhere.name)
    return root.id


def new_branch_source(store: Store, repository: str) -> str | None:
    """The branch that a new branch starts from; None: empty, or the repository is new."""
    with suppress(RepositoryNotFoundError):
        return store.new_branch_source(repository)
    return None


def assert_no_active_run(queue: Runs, repository: str, branch: str) -> None:
    """Raises BranchBusyError: what else is written meanwhile would look abandoned to that run."""
    active = queue.active_on(repository, branch)
    if active is not None:
        raise BranchBusyError(
            f"run {active.id} ({active.plan.name}, {active.status}) writes {repository}/{branch}",
            fix=f"wait for it, `perago run --resume {active.id}`, or `perago cancel {active.id}`",
        )


@dataclass(frozen=True, slots=True)
class ManualCommit:
    """A commit to be made on ``head`` of a branch.

    ``what`` names it in branch names and errors; ``key`` is the metadata that only this kind of
    commit carries.
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
        """Put ``changes`` on the branch as the head's only child; None if they change nothing.

        ``before_publishing`` may raise to stop it at the last moment. Raises HeadMovedError if the
        branch is elsewhere, and then it is as it was; WrongLandingError if a store that can't
        compare and swap put the commit elsewhere; PublishUnknownError if the answer was lost for
        good.
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
                EXPECTED_HEAD_KEY: self.head.id,  # a fence refuses every merge that has none
            }
            staged = store.commit(repository, staging, message=self.message, metadata=metadata)
            if before_publishing is not None:
                before_publishing()
            landed = self._merge(staged, metadata)
        if not landed.is_only_child_of(self.head.id) or landed.tree != staged.tree:
            raise WrongLandingError(
                f"the {self.what} landed as {landed.id} on {', '.join(landed.parents)}, not on "
                f"{self.head.id}: somebody else wrote to {self.branch!r} at that moment",
                fix=f"look at `perago history {self.branch} --repository {repository}`",
            )
        return landed

    def _merge(self, staged: Commit, metadata: Mapping[str, str]) -> Commit:
        swaps = self.store.atomicity(self.repository, staged.id).cas_merge
        try:
            return self.store.merge(
                self.repository,
                staged.id,
                self.branch,
                expected_head=self.head.id if swaps else None,
                message=self.message,
                metadata=metadata,
            )
        except StoreError as answer:
            return self._read_back(metadata[self.key], answer)

    def _read_back(self, identity: str, answer: StoreError) -> Commit:
        """Our commit, if it is there after all: a refusal may be that of a second copy of it."""
        try:
            for commit in self.store.history(self.repository, self.branch, limit=SEARCH_LIMIT):
                if commit.metadata.get(self.key) == identity:
                    return commit
                if commit.id == self.head.id:
                    break
        except StoreError as blind:
            raise self._unknown(f"{answer.message}; {blind.message}") from answer
        if isinstance(answer, StoreRefusedError):
            raise answer
        raise self._unknown(answer.message) from answer

    def _unknown(self, why: str) -> PublishUnknownError:
        return PublishUnknownError(
            f"unknown whether the {self.what} was published to {self.branch!r}: {why}",
            fix="look at `perago history`; to do it again is safe, and changes nothing if it is "
            "there",
        )

    @contextmanager
    def _staging_branch(self) -> Iterator[tuple[str, str]]:
        """A hidden branch and its identity, gone afterwards; `perago gc` finds one a crash left."""
        identity = new_execution_id()
        name = f"{STAGING_PREFIX}{self.what.replace(' ', '-')}-exec-{identity}"
        try:
            self.store.create_branch(self.repository, name, self.head.id, hidden=True)
            yield name, identity
        finally:
            with suppress(StoreError):  # what was published stands, and `perago gc` finds it
                self.store.delete_branch(self.repository, name)
