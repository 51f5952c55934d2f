"""The branches of a shared server that this home made itself, and may therefore run on.

The queue of this home is the authority over them: it knows every run there ever was on them. Of a
branch somebody else made it knows nothing, so a run there could take another one's commit for an
abandoned one.

That we made a branch of this name once doesn't make the present one ours: somebody may have deleted
it and made another. So what we know of ours has to be in its history.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from perago.errors import (
    BranchExistsError,
    BranchNotFoundError,
    CommitNotFoundError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    RuntimeConfigError,
    StoreRefusedError,
)
from perago.file_lock import locked
from perago.operations.manual_commit import create_branch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.ports.store import Store
    from perago.settings import Settings


_HISTORY_LIMIT = 10_000
"""How many commits of a branch are looked through for the ones that prove it ours."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One branch we made, or were about to: ``began_at`` is its first commit once it is ours."""

    endpoint: str
    repository: str
    branch: str
    began_at: str | None = None


def own_branches(settings: Settings) -> OwnBranches | None:
    """This home's; None where any branch will do.

    Nobody else can reach an embedded store, and Conductor knows the runs of everybody.
    """
    if settings.store == "embedded" or settings.orchestrator == "conductor":
        return None
    directory = settings.home.absolute() / "lakefs-branches"
    address, _, _ = settings.lakefs_login
    return OwnBranches(directory, address)


class OwnBranches:
    """A file for each branch in ``directory``, locked while it is being decided about."""

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
        """The head of a branch of ours. A missing one is made, and so is a missing repository.

        A new branch begins at the ref ``start_at``, or empty. Raises RuntimeConfigError for a
        branch that isn't ours, or of which that can't be told: it has to lead back to where ours
        began, and to ``last_output``, the commit that our last run there ended at.
        """

        def assert_ours(claim: Claim | None, head: Commit) -> None:
            _assert_ours(store, claim, repository, branch, head, last_output=last_output)

        return self._head_or_new(store, repository, branch, start_at, assert_ours)

    def any_head_or_new(
        self, store: Store, repository: str, branch: str, *, start_at: str | None = None
    ) -> Commit:
        """As :meth:`head_or_new`, but a branch of somebody else's will do, and stays theirs."""

        def whosever(_claim: Claim | None, _head: Commit) -> None:
            """Nothing to object to."""

        return self._head_or_new(store, repository, branch, start_at, whosever)

    def _head_or_new(
        self,
        store: Store,
        repository: str,
        branch: str,
        start_at: str | None,
        look_at: Callable[[Claim | None, Commit], None],
    ) -> Commit:
        with self._deciding_about(repository, branch) as file:
            try:
                head = store.head(repository, branch)
            except RepositoryNotFoundError:
                file.write(Claim(self._endpoint, repository, branch))
                return self._make_repository(store, file, repository, branch)
            except BranchNotFoundError:
                file.write(Claim(self._endpoint, repository, branch))
                return self._make_branch(store, file, repository, branch, start_at)
            look_at(file.read(), head)
            return head

    def _make_repository(
        self, store: Store, file: _ClaimFile, repository: str, branch: str
    ) -> Commit:
        try:
            root = store.create_repository(repository, default_branch=branch)
        except RepositoryExistsError:
            file.clear()
            raise _foreign(repository, branch, "somebody else made it at this moment") from None
        except StoreRefusedError:
            file.clear()
            raise
        file.write(Claim(self._endpoint, repository, branch, root.id))
        return root

    def _make_branch(
        self, store: Store, file: _ClaimFile, repository: str, branch: str, start_at: str | None
    ) -> Commit:
        try:
            at = create_branch(store, repository, branch, start_at)
        except BranchExistsError:
            file.clear()
            raise _foreign(repository, branch, "somebody else made it at this moment") from None
        except (StoreRefusedError, CommitNotFoundError):
            file.clear()
            raise
        file.write(Claim(self._endpoint, repository, branch, at))
        return store.head(repository, branch)

    @contextmanager
    def _deciding_about(self, repository: str, branch: str) -> Iterator[_ClaimFile]:
        name = f"{self._endpoint}\n{repository}\n{branch}"
        path = self._directory / f"{hashlib.sha256(name.encode()).hexdigest()}.json"
        with locked(path) as descriptor:
            yield _ClaimFile(descriptor)


class _ClaimFile:
    """A claim on disk. A crash while it is written leaves none, which is a no, never a yes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self) -> Claim | None:
        size = os.fstat(self._descriptor).st_size
        try:
            return Claim(**json.loads(os.pread(self._descriptor, size, 0)))
        except (ValueError, TypeError):
            return None

    def write(self, claim: Claim) -> None:
        self.clear()
        os.pwrite(self._descriptor, json.dumps(asdict(claim)).encode(), 0)
        os.fsync(self._descriptor)

    def clear(self) -> None:
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
        raise _foreign(repository, branch, "this home didn't make it")
    if claim.began_at is None:
        # It may be ours, or somebody else's who was quicker: only a person can tell.
        raise _foreign(
            repository,
            branch,
            f"a command that was to make it was cut off; it is at {head.id} now",
            otherwise=", or delete that one if it is yours",
        )
    missing = _not_led_to(store, repository, head, {claim.began_at, last_output or head.id})
    if claim.began_at in missing:
        raise _foreign(
            repository,
            branch,
            f"it is at {head.id}, which doesn't lead back to {claim.began_at}, where the one this "
            "home made began: somebody made it anew",
        )
    if missing:
        raise _foreign(
            repository,
            branch,
            f"it is at {head.id}, which doesn't lead back to {last_output}, where the last run "
            "ended: somebody made it anew, or moved it back",
            otherwise=", or accept that one as it is with --from-head if nobody else writes there",
        )


def _not_led_to(store: Store, repository: str, head: Commit, wanted: set[str]) -> set[str]:
    """Those of ``wanted`` that are neither the head nor among what came before it."""
    missing = set(wanted)
    for commit in store.history(repository, head.id, limit=_HISTORY_LIMIT):
        missing.discard(commit.id)
        if not missing:
            break
    return missing


def _foreign(repository: str, branch: str, why: str, *, otherwise: str = "") -> RuntimeConfigError:
    return RuntimeConfigError(
        f"branch {branch!r} of {repository!r} is not this home's to run on: {why}",
        fix=f"name a branch that isn't there yet: --branch NAME; it will be made{otherwise}",
    )
