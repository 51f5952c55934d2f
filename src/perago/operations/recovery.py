"""Recovery after a stopped run: a new run of the same plan, from the branch's present head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import BranchBusyError, RunError
from perago.model.run import RunStatus
from perago.operations.branches import assert_no_active_run
from perago.operations.run_start import StartingPoint, start_run
from perago.ports.orchestrator import SharedRuns

if TYPE_CHECKING:
    from perago.model.commit import Commit
    from perago.model.run import RunRecord
    from perago.model.workspace import WorkspaceRef
    from perago.operations.branches import OwnBranches
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store


_HISTORY_LIMIT = 1000
"""How many commits of the branch are searched for the run's last accepted one."""


@dataclass(frozen=True, slots=True)
class BranchSinceRun:
    """The branch of a stopped run.

    ``accepted`` is the last commit that the orchestrator accepted from the run; ``since`` are the
    commits on top of it, newest first. If ``accepted`` isn't among the branch's last thousand
    commits, ``leads_back`` is false and ``since`` is empty.
    """

    workspace: WorkspaceRef
    accepted: str
    head: Commit
    since: tuple[Commit, ...]
    leads_back: bool


def branch_since_run(store: Store, run: RunRecord) -> BranchSinceRun | None:
    """None for a run without a workspace. Raises StoreError if the branch doesn't exist."""
    workspace, accepted = run.workspace, run.output_ref
    if workspace is None or accepted is None:
        return None
    head = store.head(workspace.repository, workspace.branch)
    since: list[Commit] = []
    for commit in store.history(workspace.repository, head.id, limit=_HISTORY_LIMIT):
        if commit.id == accepted:
            return BranchSinceRun(workspace, accepted, head, tuple(since), leads_back=True)
        since.append(commit)
    return BranchSinceRun(workspace, accepted, head, (), leads_back=False)


def assert_recoverable(runs: Runs, run: RunRecord) -> None:
    """Raises RunError for a completed run, and BranchBusyError while a run is active."""
    if run.status.is_active:
        raise BranchBusyError(
            f"run {run.id} ({run.plan.name}) is {run.status}: it has not stopped",
            fix=f"follow it with `perago run --resume {run.id}`, or end it first: "
            f"`perago cancel {run.id}`",
        )
    if run.status is RunStatus.COMPLETED:
        raise RunError(
            f"run {run.id} ({run.plan.name}) is {run.status}: there is nothing to recover",
            fix="start a new run with `perago run`",
        )
    if run.workspace is not None:
        assert_no_active_run(runs, run.workspace.repository, run.workspace.branch)


def recover(runs: Runs, store: Store, run: RunRecord, *, own: OwnBranches | None = None) -> str:
    """Start a run like ``run`` from the branch's present head, and return its id.

    Raises as :func:`assert_recoverable` and :func:`~perago.operations.run_start.start_run` do.
    """
    assert_recoverable(runs, run)
    workspace = run.workspace
    if isinstance(runs, SharedRuns):
        if workspace is not None:
            head = store.head(workspace.repository, workspace.branch)
            workspace = workspace.model_copy(update={"ref": head.id})
        return runs.start_again(run.id, workspace)
    if workspace is None:
        return runs.start(run.plan, None)
    point = StartingPoint(workspace.repository, workspace.branch, from_head=True)
    return start_run(runs, store, run.plan, point, own=own)
