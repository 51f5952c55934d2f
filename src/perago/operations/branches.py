"""Where a branch stands before somebody starts writing to it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from perago.errors import (
    BranchBusyError,
    BranchExistsError,
    BranchNotFoundError,
    RepositoryExistsError,
    RepositoryNotFoundError,
)

if TYPE_CHECKING:
    from perago.model.commit import Commit
    from perago.ports.runs import Runs
    from perago.ports.store import Store


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


def assert_no_active_run(queue: Runs, repository: str, branch: str) -> None:
    """Raises BranchBusyError: what else is written meanwhile would look abandoned to that run."""
    active = queue.active_on(repository, branch)
    if active is not None:
        raise BranchBusyError(
            f"run {active.id} ({active.plan.name}, {active.status}) writes {repository}/{branch}",
            fix=f"wait for it, `perago run --resume {active.id}`, or `perago cancel {active.id}`",
        )
