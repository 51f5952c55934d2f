"""Branches before something is written to them: created if missing, refused while a run is active.

On a shared server a run takes place only on branches that this home created. Only the home's own
queue knows every run on such a branch. On another branch, a run could take someone's commit for an
abandoned one and replace it.

That this home once created a branch of this name proves little: the branch may have been deleted
and created again since. So the commits that we know of must be in the branch's history.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from perago.errors import (
    BranchBusyError,
    BranchExistsError,
    BranchNotFoundError,
    CommitNotFoundError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    RuntimeConfigError,
    StoreRefusedError,
)
from perago.file_lock import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store
    from perago.settings import Settings


_HISTORY_LIMIT = 10_000
"""How many commits of a branch are searched for the ones that prove it ours."""


def head_or_new(
    store: Store, repository: str, branch: str, *, start_at: str | None = None
) -> Commit:
    """The branch's head. A missing repository or branch is created.

    A new branch starts at the ref ``start_at``, or empty.
    """
    try:
        return store.head(repository, branch)
    except RepositoryNotFoundError:
        with suppress(RepositoryExistsError):  # another process was quicker
            store.create_repository(repository, default_branch=branch)
    except BranchNotFoundError:
        with suppress(BranchExistsError):
            _create_branch(store, repository, branch, start_at)
    return head_or_new(store, repository, branch, start_at=start_at)


def _create_branch(store: Store, repository: str, branch: str, start_at: str | None) -> str:
    """The commit that the new branch starts at."""
    at = store.get_commit(repository, start_at).id if start_at else _root_of(store, repository)
    store.create_branch(repository, branch, at)
    return at


def _root_of(store: Store, repository: str) -> str:
    """The repository's empty first commit."""
    anywhere = next(iter(store.branches(repository)))
    *_, root = store.history(repository, anywhere.name)
    return root.id


def new_branch_source(store: Store, repository: str) -> str | None:
    """The branch that a new branch starts from. None: it starts empty, or the repository is new."""
    with suppress(RepositoryNotFoundError):
        return store.new_branch_source(repository)
    return None


def assert_no_active_run(runs: Runs, repository: str, branch: str) -> None:
    """Raises BranchBusyError: an active run would take other commits for abandoned ones."""
    active = runs.active_on(repository, branch)
    if active is not None:
        raise BranchBusyError(
            f"run {active.id} ({active.plan.name}, {active.status}) writes {repository}/{branch}",
            fix=f"wait for it, `perago run --resume {active.id}`, or `perago cancel {active.id}`",
        )


# --- Branches that this home owns -----------------------------------------------------------------


def own_branches(settings: Settings) -> OwnBranches | None:
    """The branches that this home may run on; None if it may run on any.

    An embedded store has no other user, and Conductor knows every user's runs.
    """
    if settings.store == "embedded" or settings.orchestrator == "conductor":
        return None
    address, _, _ = settings.lakefs_login
    return OwnBranches(settings.home.absolute() / "lakefs-branches", address)


@dataclass(frozen=True, slots=True)
class Claim:
    """A branch that this home created. ``began_at`` is its first commit; None until created."""

    endpoint: str
    repository: str
    branch: str
    began_at: str | None = None


class OwnBranches:
    """One claim file for each branch in ``directory``, locked during a decision about the branch.

    ``endpoint`` is the address of the lakeFS server.
    """

    def __init__(self, directory: Path, endpoint: str) -> None:
        self._directory = directory
        self._endpoint = endpoint

    def head_or_new(
        self,
        store: Store,
        repository: str,
        branch: str,
        *,
        start_at: str | None = None,
        last_output: str | None = None,
    ) -> Commit:
        """The head of a branch of ours. A missing repository or branch is created, and is ours.

        A new branch starts at the ref ``start_at``, or empty. ``last_output`` is the commit at
        which our last run there ended. Raises RuntimeConfigError unless the branch's history
        proves it ours: it must contain that commit and the one at which our branch began.
        """

        def check(claim: Claim | None, head: Commit) -> None:
            _assert_ours(store, claim, repository, branch, head, last_output=last_output)

        return self._head_or_new(store, repository, branch, start_at, check)

    def any_head_or_new(
        self, store: Store, repository: str, branch: str, *, start_at: str | None = None
    ) -> Commit:
        """As :meth:`head_or_new`, but an existing branch needn't be ours and doesn't become so."""
        return self._head_or_new(store, repository, branch, start_at, lambda _claim, _head: None)

    def _head_or_new(
        self,
        store: Store,
        repository: str,
        branch: str,
        start_at: str | None,
        check: Callable[[Claim | None, Commit], None],
    ) -> Commit:
        claim = Claim(self._endpoint, repository, branch)
        with self._locked_file(claim) as file:
            try:
                head = store.head(repository, branch)
            except RepositoryNotFoundError:
                file.create(
                    claim, lambda: store.create_repository(repository, default_branch=branch).id
                )
            except BranchNotFoundError:
                file.create(claim, lambda: _create_branch(store, repository, branch, start_at))
            else:
                check(file.read(), head)
                return head
            return store.head(repository, branch)

    @contextmanager
    def _locked_file(self, claim: Claim) -> Iterator[_ClaimFile]:
        name = f"{claim.endpoint}\n{claim.repository}\n{claim.branch}"
        path = self._directory / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
        with locked(path) as descriptor:
            yield _ClaimFile(descriptor)


class _ClaimFile:
    """A claim on disk. A crash during a write leaves no claim, so the branch isn't ours."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def create(self, claim: Claim, create: Callable[[], str]) -> None:
        """Claim a branch, create it, and note the commit it begins at.

        Raises RuntimeConfigError if another process creates it first.
        """
        self._write(claim)
        try:
            began_at = create()
        except (RepositoryExistsError, BranchExistsError):
            self._clear()
            why = "another process created it at the same moment"
            raise _foreign(claim.repository, claim.branch, why) from None
        except (StoreRefusedError, CommitNotFoundError):
            self._clear()
            raise
        self._write(replace(claim, began_at=began_at))

    def read(self) -> Claim | None:
        size = os.fstat(self._descriptor).st_size
        try:
            return Claim(**json.loads(os.pread(self._descriptor, size, 0)))
        except (ValueError, TypeError):
            return None

    def _write(self, claim: Claim) -> None:
        self._clear()
        os.pwrite(self._descriptor, json.dumps(asdict(claim)).encode(), 0)
        os.fsync(self._descriptor)

    def _clear(self) -> None:
        os.ftruncate(self._descriptor, 0)


def _assert_ours(
    store: Store,
    claim: Claim | None,
    repository: str,
    branch: str,
    head: Commit,
    *,
    last_output: str | None,
) -> None:
    if claim is None:
        raise _foreign(repository, branch, "this home didn't create it")
    if claim.began_at is None:
        # Ours, or another process's that was quicker: only a person can find out.
        raise _foreign(
            repository,
            branch,
            f"a command was cut off while it created the branch, which is at {head.id} now",
            otherwise=", or delete the branch if it is yours",
        )
    missing = _not_in_history(store, repository, head, {claim.began_at, last_output or head.id})
    if claim.began_at in missing:
        raise _foreign(
            repository,
            branch,
            f"it is at {head.id}, whose history lacks {claim.began_at}, where the branch of this "
            "home began: it was deleted and created again",
        )
    if missing:
        raise _foreign(
            repository,
            branch,
            f"it is at {head.id}, whose history lacks {last_output}, where the last run ended: the "
            "branch was created again, or moved back",
            otherwise=", or go on from the present head with --from-head if only you write there",
        )


def _not_in_history(store: Store, repository: str, head: Commit, wanted: set[str]) -> set[str]:
    missing = set(wanted)
    for commit in store.history(repository, head.id, limit=_HISTORY_LIMIT):
        missing.discard(commit.id)
        if not missing:
            break
    return missing


def _foreign(repository: str, branch: str, why: str, *, otherwise: str = "") -> RuntimeConfigError:
    return RuntimeConfigError(
        f"branch {branch!r} of {repository!r} is not this home's to run on: {why}",
        fix=f"name a branch that doesn't exist yet, --branch NAME; it is created{otherwise}",
    )
