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
    from perago.model.run import RunRecord
    from perago.ports.runs import Runs
    from perago.ports.store import Store

_RUNS_LOOKED_AT = 1000


def head_or_new(store: Store, repository: str, branch: str) -> Commit:
    """The branch's head; a missing repository or branch is made, and starts empty."""
    try:
        return store.head(repository, branch)
    except RepositoryNotFoundError:
        with suppress(RepositoryExistsError):  # somebody else was quicker
            store.create_repository(repository, default_branch=branch)
    except BranchNotFoundError:
        with suppress(BranchExistsError):
            store.create_branch(repository, branch, _root_of(store, repository))
    return head_or_new(store, repository, branch)


def _root_of(store: Store, repository: str) -> str:
    """The repository's empty first commit: what a branch nobody has seen starts from."""
    anywhere = next(iter(store.branches(repository)))
    *_, root = store.history(repository, anywhere.name)
    return root.id


def last_run_on(queue: Runs, repository: str, branch: str) -> RunRecord | None:
    """The newest run that works on this branch."""
    return next(
        (
            run
            for run in queue.runs(limit=_RUNS_LOOKED_AT)
            if run.workspace
            and (run.workspace.repository, run.workspace.branch) == (repository, branch)
        ),
        None,
    )


def assert_no_active_run(queue: Runs, repository: str, branch: str) -> None:
    """Raises BranchBusyError: what else is written meanwhile would look abandoned to that run.

    An active run is always the newest on its branch, because the queue starts no second one.
    """
    last = last_run_on(queue, repository, branch)
    if last is not None and last.status.is_active:
        raise BranchBusyError(
            f"run {last.id} ({last.plan.name}, {last.status}) writes {repository}/{branch}",
            fix=f"wait for it, `perago run --resume {last.id}`, or `perago cancel {last.id}`",
        )
