"""From a pipeline and a place in the store to a scheduled run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import PublishFenceError
from perago.model.run import RunStatus
from perago.model.workspace import WorkspaceRef
from perago.operations.import_export import import_directory
from perago.operations.manual_commit import assert_no_active_run, head_or_new

if TYPE_CHECKING:
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.model.run import RunPlan, RunRecord
    from perago.operations.branch_ownership import OwnBranches
    from perago.ports.orchestrator import Runs
    from perago.ports.store import OnTransfer, Store


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where a run begins: a branch, and what to do about its present state.

    ``start_at`` is the ref that the branch begins at if it has to be made; empty without.
    """

    repository: str
    branch: str = "main"
    directory: Path | None = None
    from_head: bool = False
    start_at: str | None = None


def start_run(
    queue: Runs,
    store: Store,
    plan: RunPlan,
    point: StartingPoint,
    progress: OnTransfer | None = None,
    *,
    own: OwnBranches | None = None,
) -> str:
    """Schedule a run from the branch's head, after importing ``directory`` if one is given.

    A missing repository or branch is made; with ``own``, only a branch of ours is run on, or
    RuntimeConfigError raised. Raises PublishFenceError if the last run here ended
    without completing and something it doesn't account for is on the branch: going on from there
    takes a person's word, ``from_head``. Raises BranchBusyError if a run is active here.
    """
    if not any(step.uses_workspace for step in plan.steps):
        return queue.start(plan, None)
    last = None if point.from_head else queue.last_on(point.repository, point.branch)
    head = _head(store, point, own, last)
    # Before anything is imported; that nobody starts meanwhile, the queue itself sees to.
    assert_no_active_run(queue, point.repository, point.branch)
    if last is not None:
        _assert_accounted_for(last, point, head)
    if point.directory is not None:
        imported = import_directory(
            store,
            repository=point.repository,
            branch=point.branch,
            directory=point.directory,
            progress=progress,
        )
        head = imported or head
    workspace = WorkspaceRef(
        repository=point.repository, branch=point.branch, ref_type="commit", ref=head.id
    )
    return queue.start(plan, workspace)


def _head(
    store: Store, point: StartingPoint, own: OwnBranches | None, last: RunRecord | None
) -> Commit:
    if own is None:
        return head_or_new(store, point.repository, point.branch, start_at=point.start_at)
    return own.head_or_new(
        store,
        point.repository,
        point.branch,
        start_at=point.start_at,
        last_output=last.output_ref if last else None,
    )


def _assert_accounted_for(last: RunRecord, point: StartingPoint, head: Commit) -> None:
    if last.status is RunStatus.COMPLETED or last.output_ref == head.id:
        return
    raise PublishFenceError(
        f"run {last.id} ended {last.status} at {last.output_ref}, and {point.branch!r} is at "
        f"{head.id}: something it doesn't account for was published there",
        fix="look at `perago history`, then go on from there: start with --from-head, or as that "
        f"run was started with `perago recover {last.id}`",
    )
