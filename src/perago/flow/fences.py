"""May this attempt publish? Pure decisions over values that were just read.

The attempt fence judges what the orchestrator says, the publish fence where the branch is. A
commit's metadata never turns a no into a yes; it can only add a no.
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
    """The attempt fence: raises StaleAttemptError unless this very delivery is the current one.

    Raises SupersededError if the same task was delivered again since: only the last one counts.
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
        moved.append("a newer attempt has taken its place")
    stale = f"attempt {attempt.task_id} of {attempt.reference_task_name} is stale: "
    if moved:
        raise StaleAttemptError(stale + ", ".join(moved))
    if is_superseded(delivery, now):
        raise SupersededError(
            f"{stale}it was delivered again, to {now.worker_id} (delivery {now.poll_count}; this "
            f"is {delivery.poll_count}, to {delivery.worker_id})"
        )


class Move(Enum):
    """What to do to the target branch; REPLACE and RELOCATE_BACK drop an abandoned head."""

    MERGE = auto()
    REPLACE = auto()
    NOTHING = auto()
    RELOCATE_BACK = auto()
    REFUSE = auto()


class HeadPosition(Enum):
    """Where the target branch's head is, seen from the input commit.

    A single commit on top of it is ABANDONED: published by an attempt that lost its lease.
    """

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
    """Where the head is, by its id and its parents alone."""
    if head.id == input_ref:
        return HeadPosition.AT_INPUT
    return HeadPosition.ABANDONED if head.is_only_child_of(input_ref) else HeadPosition.ELSEWHERE


def decide(head: Commit, input_ref: str, *, changed: bool) -> Move:
    """Look up the publish table; ``changed`` says that the task changed something."""
    return PUBLISH_TABLE[head_position(head, input_ref)][changed]


def assert_not_a_twins(head: Commit, execution: Execution) -> None:
    """Raises TwinPublishedError if another execution of this same delivery published the head.

    That one may still be accepted, so its commit is never replaced and this one reports nothing.
    """
    mine, theirs = execution.metadata(), head.metadata
    same_delivery = all(theirs.get(key) == mine[key] for key in (TASK_ID_KEY, "perago.retry_count"))
    if same_delivery and theirs.get("perago.execution_id") != execution.id:
        raise TwinPublishedError(
            f"{head.id} was published by another execution of this same delivery "
            f"({theirs.get('perago.execution_id')}), which may still be accepted",
            fix="nothing to do: the other execution reports, or the lease ends and a retry runs",
        )


def assert_only_writer(attempt: Attempt, workspace: WorkspaceRef, writers: Iterable[str]) -> None:
    """Raises SecondWriterError if another active run writes the branch of this attempt."""
    others = sorted(set(writers) - {attempt.workflow_instance_id})
    if others:
        raise SecondWriterError(
            f"branch {workspace.branch!r} of {workspace.repository!r} is written by another active "
            f"workflow as well: {', '.join(others)}",
            fix="wait until one of them ends, or cancel one (`perago cancel RUN`): only one active "
            "workflow may write a branch",
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
    """Why a head that looks abandoned must stay; None if it may be replaced.

    Under the policy ``own``, only the commit of another attempt of this same step may be replaced.
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
    """The level in force: ``cas`` if the store can compare and swap at every commit involved.

    Raises PublishFenceError if ``cas`` was requested and isn't available.
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
            fix="install the repository's fence (`perago fence install`), check that the server "
            "runs actions (`perago fence probe`), or set PERAGO_PUBLISH_FENCE=auto",
        )
    return PublishLevel.CAS


def assert_lease_covers(budget: PublishBudget, remaining: float) -> None:
    """Raises LeaseTooShortError: better not to start than to time out while publishing."""
    if remaining < budget.publish_seconds:
        raise LeaseTooShortError(
            f"{remaining:.0f} s of the lease are left, and publishing may take "
            f"{budget.publish_seconds} s",
            fix="raise TimeoutPolicy.response_seconds, or lower the task's PublishBudget",
        )
