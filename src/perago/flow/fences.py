"""May this attempt publish? Pure decisions over values that were just read.

The attempt fence asks the orchestrator, the publish fence asks the branch. Neither ever turns a
no into a yes by what a commit's metadata says; metadata can only add a no.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from perago.errors import (
    LeaseTooShortError,
    PublishFenceError,
    SecondWriterError,
    StaleAttemptError,
    SupersededError,
    TwinPublishedError,
)
from perago.model.attempt import STEP_KEYS, TASK_ID_KEY, TaskStatus, is_superseded
from perago.model.commit import IMPORT_KEY
from perago.model.outcome import PublishLevel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perago.flow.runtime import ReplacePolicy, RequestedLevel
    from perago.model.attempt import Attempt, AttemptSnapshot, Delivery, Execution
    from perago.model.commit import Atomicity, Commit
    from perago.model.controls import PublishBudget
    from perago.model.workspace import WorkspaceRef


def assert_current_attempt_snapshot(delivery: Delivery, now: AttemptSnapshot) -> None:
    """Raises StaleAttemptError unless the orchestrator still counts on this very delivery.

    Of a task that was handed out again, only the last delivery counts: SupersededError.
    """
    attempt = delivery.attempt
    expected = {
        "status": (TaskStatus.IN_PROGRESS, now.status),
        "workflow instance": (attempt.workflow_instance_id, now.workflow_instance_id),
        "task id": (attempt.task_id, now.task_id),
        "retry count": (attempt.retry_count, now.retry_count),
    }
    moved = [f"{what} is {is_} (was {was})" for what, (was, is_) in expected.items() if was != is_]
    if not now.is_latest:
        moved.append("a newer attempt stands for its reference")
    stale = f"attempt {attempt.task_id} of {attempt.reference_task_name} is stale: "
    if moved:
        raise StaleAttemptError(stale + ", ".join(moved))
    if is_superseded(delivery, now):
        raise SupersededError(
            f"{stale}it was delivered again, to {now.worker_id} (delivery {now.poll_count}; this "
            f"is {delivery.poll_count}, to {delivery.worker_id})"
        )


class Move(Enum):
    """What to do to the target branch."""

    MERGE = auto()
    REPLACE = auto()
    NOTHING = auto()
    RELOCATE_BACK = auto()
    REFUSE = auto()


class HeadPosition(Enum):
    """Where the target branch's head stands, seen from the input commit."""

    AT_INPUT = auto()
    ABANDONED = auto()
    ELSEWHERE = auto()


PUBLISH_TABLE = {
    # where the head is     something changed           nothing changed
    HeadPosition.AT_INPUT: {True: Move.MERGE, False: Move.NOTHING},
    HeadPosition.ABANDONED: {True: Move.REPLACE, False: Move.RELOCATE_BACK},
    HeadPosition.ELSEWHERE: {True: Move.REFUSE, False: Move.REFUSE},
}


def head_position(head: Commit, input_ref: str) -> HeadPosition:
    if head.id == input_ref:
        return HeadPosition.AT_INPUT
    return HeadPosition.ABANDONED if head.is_only_child_of(input_ref) else HeadPosition.ELSEWHERE


def decide(head: Commit, input_ref: str, *, changed: bool) -> Move:
    return PUBLISH_TABLE[head_position(head, input_ref)][changed]


def assert_not_a_twins(head: Commit, execution: Execution) -> None:
    """Raises TwinPublishedError if another execution of this same delivery put the head there.

    It may still be accepted, so it is never replaced, and nothing is said that could prevent it.
    """
    mine, theirs = execution.metadata(), head.metadata
    same_delivery = all(theirs.get(key) == mine[key] for key in (TASK_ID_KEY, "perago.retry_count"))
    if same_delivery and theirs.get("perago.execution_id") != execution.id:
        raise TwinPublishedError(
            f"{head.id} was published by another execution of this same delivery "
            f"({theirs.get('perago.execution_id')}), which may still be accepted",
            fix="nothing: that one reports, or the lease ends and a retry goes on",
        )


def assert_only_writer(attempt: Attempt, workspace: WorkspaceRef, writers: Iterable[str]) -> None:
    """Raises SecondWriterError if another active run writes the branch this attempt is to write."""
    others = sorted(set(writers) - {attempt.workflow_instance_id})
    if others:
        raise SecondWriterError(
            f"branch {workspace.branch!r} of {workspace.repository!r} is written by another active "
            f"workflow as well: {', '.join(others)}",
            fix="let one of them end, or cancel it: one active workflow writes a branch at a time",
        )


def reason_not_to_replace(
    head: Commit,
    execution: Execution,
    *,
    policy: ReplacePolicy,
    was_accepted: bool,
    touches_actions: bool,
    uncommitted: Iterable[str],
) -> str | None:
    """Why a head that looks abandoned must stay after all; None if it may be replaced.

    Under the policy ``own``, only what another attempt of this same step published may be.
    """
    mine, theirs = execution.metadata(), head.metadata
    if was_accepted:
        return f"it is the accepted result of task {theirs.get(TASK_ID_KEY)}"
    if IMPORT_KEY in theirs:
        return "a person imported it"
    if policy == "own" and any(theirs.get(key) != mine[key] for key in STEP_KEYS):
        return "PERAGO_REPLACE=own, and it wasn't published by an attempt of this same step"
    if touches_actions:
        return "it changes the repository's own actions"
    if left := list(uncommitted):
        return f"the branch has uncommitted objects: {', '.join(left)}"
    return None


def resolve_level(requested: RequestedLevel, found: Iterable[Atomicity]) -> PublishLevel:
    """The level in force. ``cas`` where the store merges atomically at every commit involved.

    Raises PublishFenceError if ``cas`` was asked for and isn't to be had.
    """
    found = list(found)
    available = all(atomicity.cas_merge for atomicity in found)
    if requested == "soft" or (requested == "auto" and not available):
        return PublishLevel.SOFT
    if not available:
        why = next((one.shortcoming for one in found if one.shortcoming), None)
        raise PublishFenceError(
            "PERAGO_PUBLISH_FENCE=cas, but this repository can't compare and swap at the commits "
            "involved" + (f": {why}" if why else ""),
            fix="install the repository's fence (`perago fence install`), see that the server runs "
            "actions (`perago fence probe`), or set PERAGO_PUBLISH_FENCE=auto",
        )
    return PublishLevel.CAS


def assert_lease_covers(budget: PublishBudget, remaining: float) -> None:
    """Raises LeaseTooShortError: better not to start than to publish and be timed out."""
    if remaining < budget.publish_seconds:
        raise LeaseTooShortError(
            f"{remaining:.0f} s of the lease are left, and publishing may take "
            f"{budget.publish_seconds} s",
            fix="raise TimeoutPolicy.response_seconds, or lower the task's PublishBudget",
        )
