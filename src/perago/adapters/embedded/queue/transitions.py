"""What happens to attempts and runs, each inside the transaction its caller holds open."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue.policy import (
    Consequence,
    Timing,
    input_for,
    next_deadline,
    overdue,
    retry_delay,
    run_status_after,
    step_after,
    step_of,
)
from perago.adapters.embedded.queue.rows import (
    decode_plan,
    load_attempt,
    load_run,
    run_of,
    timing_of,
)
from perago.errors import BranchBusyError, RunError
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from perago.model.controls import TimeoutPolicy
    from perago.model.run import RunRecord, StepPlan
    from perago.model.workspace import WorkspaceRef


# --- Which run a branch belongs to, and which runs may go on there ---
# Other runs that had a publication accepted on the branch of the run `mine` since that began. Row
# ids grow in the order of scheduling, and a run that ends takes its open attempts with it: what
# another run completed after `mine` began was scheduled after it too, also if that run is older
# and was resumed meanwhile. An output whose ref is the input counts: it vouched for that head.
_SUPERSEDING = """
SELECT other.id FROM runs AS other JOIN attempts AS accepted ON accepted.run_id = other.id
WHERE other.repository = mine.repository AND other.branch = mine.branch AND other.id <> mine.id
    AND accepted.status = 'COMPLETED'
    AND json_extract(accepted.output, '$.workspace') IS NOT NULL
    AND accepted.rowid > (SELECT rowid FROM attempts WHERE run_id = mine.id AND seq = 1)
"""


def active_run(connection: sqlite3.Connection, repository: str, branch: str) -> RunRecord | None:
    """The one run that may write the branch now."""
    return _first(
        connection,
        "SELECT * FROM runs WHERE repository = ? AND branch = ?"
        " AND status IN ('RUNNING', 'PAUSED')",
        repository,
        branch,
    )


def last_run(connection: sqlite3.Connection, repository: str, branch: str) -> RunRecord | None:
    """The run that was started last on the branch, however it ended."""
    return _first(
        connection,
        "SELECT * FROM runs WHERE repository = ? AND branch = ? ORDER BY position DESC LIMIT 1",
        repository,
        branch,
    )


def newest_resumable(connection: sqlite3.Connection, target: str | None) -> RunRecord | None:
    """The newest unfinished run of that target or pipeline name that isn't superseded."""
    return _first(
        connection,
        "SELECT * FROM runs AS mine"  # noqa: S608 - a constant
        " WHERE status IN ('RUNNING', 'PAUSED', 'FAILED', 'TIMED_OUT')"
        " AND (?1 IS NULL OR ?1 IN (json_extract(plan, '$.target'), json_extract(plan, '$.name')))"
        f" AND NOT EXISTS ({_SUPERSEDING}) ORDER BY position DESC LIMIT 1",
        target,
    )


def refuse_busy_branch(connection: sqlite3.Connection, workspace: WorkspaceRef | None) -> None:
    """Raise BranchBusyError if an active run writes the workspace's branch."""
    if workspace is None:
        return
    holder = active_run(connection, workspace.repository, workspace.branch)
    if holder is not None:
        raise BranchBusyError(
            f"branch {workspace.branch!r} of {workspace.repository!r} belongs to run"
            f" {holder.id}, which is {holder.status}",
            fix="resume that run, cancel it, or wait for its end: one active run writes a branch",
        )


def refuse_superseded(connection: sqlite3.Connection, run: RunRecord) -> None:
    """Raise RunError if going on with the run would undo what another one had accepted since.

    To this run's next attempt that publication would look abandoned, and be reset away.
    """
    (other,) = connection.execute(
        f"SELECT ({_SUPERSEDING} ORDER BY accepted.rowid DESC LIMIT 1)"  # noqa: S608 - a constant
        " FROM runs AS mine WHERE mine.id = ?",
        (run.id,),
    ).fetchone()
    if other is not None:
        raise RunError(
            f"run {run.id} can't go on: run {other} has published on its branch since",
            fix="start a new run with --from-head, from where the branch is now",
        )


def _first(connection: sqlite3.Connection, sql: str, *values: str | None) -> RunRecord | None:
    row = connection.execute(sql, values).fetchone()
    return None if row is None else run_of(connection, row)


@dataclass(frozen=True, slots=True)
class Moment:
    """An open transaction, and the one time at which everything in it happens."""

    connection: sqlite3.Connection
    now: float


# --- attempts ------------------------------------------------------------------------------------


def schedule(
    at: Moment,
    run: RunRecord,
    step: StepPlan,
    *,
    retry_count: int = 0,
    delay: float = 0.0,
    chain_started_at: float | None = None,
) -> None:
    """Add an attempt of ``step`` under a task id of its own, due after ``delay``.

    ``chain_started_at`` carries the clock of ``timeout.total_seconds`` over from attempt to
    attempt; without it the clock starts now.
    """
    timing = Timing(
        due_at=at.now + delay,
        chain_started_at=at.now if chain_started_at is None else chain_started_at,
    )
    at.connection.execute(
        "INSERT INTO attempts (task_id, run_id, reference, task_name, seq, iteration, retry_count,"
        " status, queued, scheduled_at, due_at, chain_started_at, look_at, input)"
        " VALUES (?, ?, ?, ?, (SELECT count(*) + 1 FROM attempts WHERE run_id = ?), 0, ?,"
        " ?, 1, ?, ?, ?, ?, ?)",
        (
            str(uuid.uuid4()),
            run.id,
            step.reference,
            step.task_name,
            run.id,
            retry_count,
            TaskStatus.SCHEDULED,
            at.now,
            timing.due_at,
            timing.chain_started_at,
            next_deadline(timing, step.controls.timeout, at.now),
            json.dumps(input_for(run, step)),
        ),
    )


def hand_out(at: Moment, row: sqlite3.Row, *, worker_id: str, timeout: TimeoutPolicy) -> None:
    """Give the attempt to a worker: IN_PROGRESS, with a fresh lease and one more poll counted."""
    started_at = at.now if row["started_at"] is None else row["started_at"]
    timing = Timing(row["due_at"], row["chain_started_at"], started_at, heard_at=at.now)
    at.connection.execute(
        "UPDATE attempts SET status = ?, queued = 0, started_at = ?, heard_at = ?, look_at = ?,"
        " worker_id = ?, poll_count = poll_count + 1, polled_at = ? WHERE task_id = ?",
        (
            TaskStatus.IN_PROGRESS,
            started_at,
            at.now,
            next_deadline(timing, timeout, at.now),
            worker_id,
            at.now,
            row["task_id"],
        ),
    )


def extend_lease(at: Moment, row: sqlite3.Row, timeout: TimeoutPolicy) -> None:
    """Count the lease from now."""
    timing = Timing(row["due_at"], row["chain_started_at"], row["started_at"], heard_at=at.now)
    at.connection.execute(
        "UPDATE attempts SET heard_at = ?, look_at = ? WHERE task_id = ?",
        (at.now, next_deadline(timing, timeout, at.now), row["task_id"]),
    )


def requeue(at: Moment, row: sqlite3.Row) -> None:
    """Make the attempt deliverable again at once; its status, lease and worker stay."""
    at.connection.execute(
        "UPDATE attempts SET queued = 1, due_at = ? WHERE task_id = ?", (at.now, row["task_id"])
    )


def end_attempt(
    at: Moment,
    task_id: str,
    status: TaskStatus,
    *,
    reason: str | None,
    output: Mapping[str, object] | None = None,
) -> None:
    """Write down how the attempt ended. Without a ``reason``, a time-out's note stays."""
    at.connection.execute(
        "UPDATE attempts SET status = ?, queued = 0, look_at = NULL, ended_at = ?,"
        " reason = coalesce(?, reason), output = ? WHERE task_id = ?",
        (status, at.now, reason, json.dumps(dict(output or {})), task_id),
    )


# --- what follows --------------------------------------------------------------------------------


def after_completion(at: Moment, run_id: str, reference: str) -> None:
    """Schedule the step that follows a completed one, or complete the run."""
    run = load_run(at.connection, run_id)
    following = step_after(run.plan, reference)
    if following is None:
        set_run_status(at, run_id, RunStatus.COMPLETED, reason=None)
    else:
        schedule(at, run, following)


def after_failure(at: Moment, task_id: str) -> None:
    """Retry an attempt that failed or timed out, after its delay, or end the run."""
    row = load_attempt(at.connection, task_id)
    run = load_run(at.connection, row["run_id"])
    step = step_of(run.plan, row["reference"])
    ended = run_status_after(
        TaskStatus(row["status"]), retry_count=row["retry_count"], retry=step.controls.retry
    )
    if ended is not None:
        end_run(at, run.id, ended, reason=_blame(row["reference"], row["reason"]))
        return
    spread = random.random()  # noqa: S311 - jitter, not a secret
    schedule(
        at,
        run,
        step,
        retry_count=row["retry_count"] + 1,
        delay=retry_delay(step.controls.retry, row["retry_count"], spread=spread),
        chain_started_at=row["chain_started_at"],
    )


def sweep(at: Moment) -> None:
    """Apply every time-out that has passed, in running runs: a paused run's clocks stand still."""
    rows = at.connection.execute(
        "SELECT attempts.*, runs.plan FROM attempts JOIN runs ON runs.id = attempts.run_id"
        " WHERE attempts.look_at <= ? AND attempts.status IN ('SCHEDULED', 'IN_PROGRESS')"
        " AND runs.status = ? ORDER BY attempts.look_at",
        (at.now, RunStatus.RUNNING),
    ).fetchall()
    for row in rows:
        timeout = step_of(decode_plan(row["plan"]), row["reference"]).controls.timeout
        passed = overdue(timing_of(row), timeout, at.now)
        if passed is None:
            continue
        if passed.consequence is Consequence.NOTE:
            at.connection.execute(
                "UPDATE attempts SET reason = ?, look_at = ? WHERE task_id = ?",
                (
                    passed.reason,
                    next_deadline(timing_of(row), timeout, at.now),
                    row["task_id"],
                ),
            )
            continue
        end_attempt(at, row["task_id"], TaskStatus.TIMED_OUT, reason=passed.reason)
        if passed.consequence is Consequence.RETRY:
            after_failure(at, row["task_id"])
        else:
            reason = _blame(row["reference"], passed.reason)
            end_run(at, row["run_id"], RunStatus.TIMED_OUT, reason=reason)


def _blame(reference: str, reason: str | None) -> str:
    return f"step {reference!r}: {reason or 'failed without saying why'}"


# --- runs ----------------------------------------------------------------------------------------


def set_run_status(at: Moment, run_id: str, status: RunStatus, *, reason: str | None) -> None:
    """Change the run alone; its attempts stay as they are."""
    at.connection.execute(
        "UPDATE runs SET status = ?, reason = ?, updated_at = ? WHERE id = ?",
        (status, reason, at.now, run_id),
    )


def end_run(at: Moment, run_id: str, status: RunStatus, *, reason: str | None) -> None:
    """End the run; whatever of it is scheduled or in progress is CANCELED."""
    for task_id in _unfinished(at, run_id):
        end_attempt(at, task_id, TaskStatus.CANCELED, reason=reason)
    set_run_status(at, run_id, status, reason=reason)


def replace_orphans(at: Moment, run: RunRecord) -> None:
    """Time out what a vanished runner had in hand, and schedule a successor for it at once.

    The successor gets its own task id: the orphan may have published, and a publication of the
    very same task id is never replaced. Attempts nobody polled yet stay; their clocks start anew.
    """
    for task_id in _unfinished(at, run.id):
        row = load_attempt(at.connection, task_id)
        step = step_of(run.plan, row["reference"])
        if row["status"] == TaskStatus.SCHEDULED:
            timing = Timing(due_at=max(row["due_at"], at.now), chain_started_at=at.now)
            at.connection.execute(
                "UPDATE attempts SET due_at = ?, chain_started_at = ?, look_at = ?"
                " WHERE task_id = ?",
                (
                    timing.due_at,
                    timing.chain_started_at,
                    next_deadline(timing, step.controls.timeout, at.now),
                    task_id,
                ),
            )
        else:
            end_attempt(at, task_id, TaskStatus.TIMED_OUT, reason="its runner is gone")
            schedule(at, run, step, retry_count=row["retry_count"] + 1)


def _unfinished(at: Moment, run_id: str) -> list[str]:
    rows = at.connection.execute(
        "SELECT task_id FROM attempts WHERE run_id = ? AND status IN (?, ?) ORDER BY seq",
        (run_id, TaskStatus.SCHEDULED, TaskStatus.IN_PROGRESS),
    )
    return [row["task_id"] for row in rows.fetchall()]
