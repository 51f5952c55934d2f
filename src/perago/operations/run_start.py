"""Starts a run: a plan, on a branch's head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import PublishFenceError
from perago.model.run import RunStatus
from perago.model.workspace import WorkspaceRef
from perago.operations.branches import assert_no_active_run, head_or_new
from perago.operations.import_export import import_directory

if TYPE_CHECKING:
    from pathlib import Path

    from perago.model.commit import Commit
    from perago.model.run import RunPlan, RunRecord
    from perago.operations.branches import OwnBranches
    from perago.ports.orchestrator import Runs
    from perago.ports.store import OnTransfer, Store


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """The branch that a run starts on.

    ``directory`` is imported first. ``from_head`` accepts the branch's present head, whatever was
    published there since the last run. ``start_at`` is the ref that a new branch starts at; None
    starts it empty.
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
    """Schedule a run from the branch's head, and return its id.

    A missing repository or branch is created. Raises BranchBusyError if a run is active on the
    branch, RuntimeConfigError if ``own`` is given and the branch isn't this home's, and
    PublishFenceError if the last run didn't complete and the branch has commits that aren't that
    run's: only ``from_head`` accepts those.
    """
    if not any(step.uses_workspace for step in plan.steps):
        return queue.start(plan, None)
    last = None if point.from_head else queue.last_on(point.repository, point.branch)
    head = _head(store, point, own, last)
    # Before anything is imported. A run that starts meanwhile is refused by the queue itself.
    assert_no_active_run(queue, point.repository, point.branch)
    if last is not None:
        _assert_no_unknown_commits(last, point, head)
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


def _assert_no_unknown_commits(last: RunRecord, point: StartingPoint, head: Commit) -> None:
    if last.status is RunStatus.COMPLETED or last.output_ref == head.id:
        return
    raise PublishFenceError(
        f"run {last.id} ended {last.status} at {last.output_ref}, and {point.branch!r} is at "
        f"{head.id}: something that isn't that run's was published there",
        fix="look at `perago history`. To accept the branch as it is, start with --from-head, or "
        f"start that run again with `perago recover {last.id}`",
    )
