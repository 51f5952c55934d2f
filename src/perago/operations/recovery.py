"""Going on after a run that stopped: a new run of the same plan, from the branch as it is now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import BranchBusyError, RunError
from perago.model.run import RunStatus
from perago.operations.manual_commit import assert_no_active_run
from perago.operations.run_start import StartingPoint, start_run
from perago.ports.orchestrator import SharedRuns

if TYPE_CHECKING:
    from perago.model.commit import Commit
    from perago.model.run import RunRecord
    from perago.model.workspace import WorkspaceRef
    from perago.operations.branch_ownership import OwnBranches
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store


_LOOKED_THROUGH = 1000
"""How many commits of the branch are searched for the one that the run got to."""


@dataclass(frozen=True, slots=True)
class BranchSinceRun:
    """What a run that stopped leaves behind on its branch.

    ``accepted`` is the last commit the orchestrator counts as the run's, and ``since`` are the ones
    on top of it, newest first. Where ``accepted`` isn't in the branch's history any more, or not in
    its last thousand commits, ``leads_back`` is false and ``since`` is empty.
    """

    workspace: WorkspaceRef
    accepted: str
    head: Commit
    since: tuple[Commit, ...]
    leads_back: bool


def branch_since_run(store: Store, run: RunRecord) -> BranchSinceRun | None:
    """Raises StoreError if the branch isn't there. A run without a workspace left nothing: None."""
    workspace, accepted = run.workspace, run.output_ref
    if workspace is None or accepted is None:
        return None
    head = store.head(workspace.repository, workspace.branch)
    since: list[Commit] = []
    for commit in store.history(workspace.repository, head.id, limit=_LOOKED_THROUGH):
        if commit.id == accepted:
            return BranchSinceRun(workspace, accepted, head, tuple(since), leads_back=True)
        since.append(commit)
    return BranchSinceRun(workspace, accepted, head, (), leads_back=False)


def assert_recoverable(runs: Runs, run: RunRecord) -> None:
    """Raises RunError for a run that needs no recovery, BranchBusyError while one is active."""
    if run.status.is_active:
        raise BranchBusyError(
            f"run {run.id} ({run.plan.name}) is {run.status}: it goes on by itself",
            fix=f"follow it with `perago run --resume {run.id}`, or end it first: "
            f"`perago cancel {run.id}`",
        )
    if run.status is RunStatus.COMPLETED:
        raise RunError(
            f"run {run.id} ({run.plan.name}) is {run.status}: there is nothing to recover",
            fix="start another one with `perago run`",
        )
    if run.workspace is not None:
        assert_no_active_run(runs, run.workspace.repository, run.workspace.branch)


def recover(runs: Runs, store: Store, run: RunRecord, *, own: OwnBranches | None = None) -> str:
    """Start a run as ``run`` was started, from the branch's present head; its id.

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
