"""How attempts and runs change state. Every function works in its caller's transaction."""

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
    controls_of,
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


@dataclass(frozen=True, slots=True)
class Transaction:
    """An open transaction and its time: everything in it happens at ``now``."""

    connection: sqlite3.Connection
    now: float


# --- attempts ------------------------------------------------------------------------------------


def schedule(
    tx: Transaction,
    run: RunRecord,
    step: StepPlan,
    *,
    retry_count: int = 0,
    delay: float = 0.0,
    chain_started_at: float | None = None,
) -> None:
    """Add an attempt of ``step`` under a new task id, due after ``delay`` seconds.

    ``timeout.total_seconds`` counts from ``chain_started_at``, which a retry passes on; by default
    from now.
    """
    timing = Timing(
        due_at=tx.now + delay,
        chain_started_at=tx.now if chain_started_at is None else chain_started_at,
    )
    tx.connection.execute(
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
            tx.now,
            timing.due_at,
            timing.chain_started_at,
            next_deadline(timing, step.controls.timeout, tx.now),
            json.dumps(input_for(run, step)),
        ),
    )


def deliver(tx: Transaction, row: sqlite3.Row, *, worker_id: str, timeout: TimeoutPolicy) -> None:
    """Assign the attempt to a worker: IN_PROGRESS, a new lease, one more poll."""
    started_at = tx.now if row["started_at"] is None else row["started_at"]
    timing = Timing(row["due_at"], row["chain_started_at"], started_at, heard_at=tx.now)
    tx.connection.execute(
        "UPDATE attempts SET status = ?, queued = 0, started_at = ?, heard_at = ?, look_at = ?,"
        " worker_id = ?, poll_count = poll_count + 1, polled_at = ? WHERE task_id = ?",
        (
            TaskStatus.IN_PROGRESS,
            started_at,
            tx.now,
            next_deadline(timing, timeout, tx.now),
            worker_id,
            tx.now,
            row["task_id"],
        ),
    )


def extend_lease(tx: Transaction, row: sqlite3.Row, timeout: TimeoutPolicy) -> None:
    """Let the lease count from now."""
    timing = Timing(row["due_at"], row["chain_started_at"], row["started_at"], heard_at=tx.now)
    tx.connection.execute(
        "UPDATE attempts SET heard_at = ?, look_at = ? WHERE task_id = ?",
        (tx.now, next_deadline(timing, timeout, tx.now), row["task_id"]),
    )


def requeue(tx: Transaction, row: sqlite3.Row) -> None:
    """Make the attempt deliverable again now; its status, lease and worker stay."""
    tx.connection.execute(
        "UPDATE attempts SET queued = 1, due_at = ? WHERE task_id = ?", (tx.now, row["task_id"])
    )


def end_attempt(
    tx: Transaction,
    task_id: str,
    status: TaskStatus,
    *,
    reason: str | None,
    output: Mapping[str, object] | None = None,
) -> None:
    """Record the attempt's end. Without a ``reason``, an earlier time-out's reason stays."""
    tx.connection.execute(
        "UPDATE attempts SET status = ?, queued = 0, look_at = NULL, ended_at = ?,"
        " reason = coalesce(?, reason), output = ? WHERE task_id = ?",
        (status, tx.now, reason, json.dumps(dict(output or {})), task_id),
    )


# --- what follows --------------------------------------------------------------------------------


def after_completion(tx: Transaction, run_id: str, reference: str) -> None:
    """Schedule the step after a completed one, or complete the run."""
    run = load_run(tx.connection, run_id)
    following = step_after(run.plan, reference)
    if following is None:
        set_run_status(tx, run_id, RunStatus.COMPLETED, reason=None)
    else:
        schedule(tx, run, following)


def after_failure(tx: Transaction, task_id: str) -> None:
    """Schedule a retry of a failed or timed-out attempt, or end the run."""
    row = load_attempt(tx.connection, task_id)
    run = load_run(tx.connection, row["run_id"])
    step = step_of(run.plan, row["reference"])
    ended = run_status_after(
        TaskStatus(row["status"]), retry_count=row["retry_count"], retry=step.controls.retry
    )
    if ended is not None:
        end_run(tx, run.id, ended, reason=_run_reason(row["reference"], row["reason"]))
        return
    spread = random.random()  # noqa: S311 - jitter, not a secret
    schedule(
        tx,
        run,
        step,
        retry_count=row["retry_count"] + 1,
        delay=retry_delay(step.controls.retry, row["retry_count"], spread=spread),
        chain_started_at=row["chain_started_at"],
    )


def apply_timeouts(tx: Transaction) -> None:
    """Apply the time-outs that have passed in running runs. A paused run has none."""
    rows = tx.connection.execute(
        "SELECT attempts.*, runs.plan FROM attempts JOIN runs ON runs.id = attempts.run_id"
        " WHERE attempts.look_at <= ? AND attempts.status IN ('SCHEDULED', 'IN_PROGRESS')"
        " AND runs.status = ? ORDER BY attempts.look_at",
        (tx.now, RunStatus.RUNNING),
    ).fetchall()
    for row in rows:
        timeout = controls_of(row).timeout
        passed = overdue(timing_of(row), timeout, tx.now)
        if passed is None:
            continue
        if passed.consequence is Consequence.NOTE:
            tx.connection.execute(
                "UPDATE attempts SET reason = ?, look_at = ? WHERE task_id = ?",
                (
                    passed.reason,
                    next_deadline(timing_of(row), timeout, tx.now),
                    row["task_id"],
                ),
            )
            continue
        end_attempt(tx, row["task_id"], TaskStatus.TIMED_OUT, reason=passed.reason)
        if passed.consequence is Consequence.RETRY:
            after_failure(tx, row["task_id"])
        else:
            reason = _run_reason(row["reference"], passed.reason)
            end_run(tx, row["run_id"], RunStatus.TIMED_OUT, reason=reason)


def _run_reason(reference: str, reason: str | None) -> str:
    return f"step {reference!r}: {reason or 'failed without a reason'}"


# --- runs ----------------------------------------------------------------------------------------


def set_run_status(tx: Transaction, run_id: str, status: RunStatus, *, reason: str | None) -> None:
    """Change the run; its attempts stay as they are."""
    tx.connection.execute(
        "UPDATE runs SET status = ?, reason = ?, updated_at = ? WHERE id = ?",
        (status, reason, tx.now, run_id),
    )


def end_run(tx: Transaction, run_id: str, status: RunStatus, *, reason: str | None) -> None:
    """End the run; its scheduled and running attempts are CANCELED."""
    for task_id in _unfinished(tx, run_id):
        end_attempt(tx, task_id, TaskStatus.CANCELED, reason=reason)
    set_run_status(tx, run_id, status, reason=reason)


def replace_orphans(tx: Transaction, run: RunRecord) -> None:
    """Time out the attempts of a dead runner and schedule their successors now.

    A successor gets a new task id: the orphan may have published, and a publication under the
    same task id is never replaced. Attempts that were not polled yet stay; their clocks restart.
    """
    for task_id in _unfinished(tx, run.id):
        row = load_attempt(tx.connection, task_id)
        step = step_of(run.plan, row["reference"])
        if row["status"] == TaskStatus.SCHEDULED:
            timing = Timing(due_at=max(row["due_at"], tx.now), chain_started_at=tx.now)
            tx.connection.execute(
                "UPDATE attempts SET due_at = ?, chain_started_at = ?, look_at = ?"
                " WHERE task_id = ?",
                (
                    timing.due_at,
                    timing.chain_started_at,
                    next_deadline(timing, step.controls.timeout, tx.now),
                    task_id,
                ),
            )
        else:
            end_attempt(tx, task_id, TaskStatus.TIMED_OUT, reason="its runner is gone")
            schedule(tx, run, step, retry_count=row["retry_count"] + 1)


def _unfinished(tx: Transaction, run_id: str) -> list[str]:
    rows = tx.connection.execute(
        "SELECT task_id FROM attempts WHERE run_id = ? AND status IN (?, ?) ORDER BY seq",
        (run_id, TaskStatus.SCHEDULED, TaskStatus.IN_PROGRESS),
    )
    return [row["task_id"] for row in rows.fetchall()]


# --- which run may write a branch -----------------------------------------------------------------

# Other runs that completed a publication on the branch of run `mine` after `mine` started. Row ids
# grow in the order of scheduling, and a run that ends cancels its open attempts. So what another
# run completed after `mine` started was also scheduled after that, even if the other run is older
# and was resumed meanwhile. An output whose ref is its input counts: it confirmed that head.
_SUPERSEDING = """
SELECT other.id FROM runs AS other JOIN attempts AS accepted ON accepted.run_id = other.id
WHERE other.repository = mine.repository AND other.branch = mine.branch AND other.id <> mine.id
    AND accepted.status = 'COMPLETED'
    AND json_extract(accepted.output, '$.workspace') IS NOT NULL
    AND accepted.rowid > (SELECT rowid FROM attempts WHERE run_id = mine.id AND seq = 1)
"""


def active_run(connection: sqlite3.Connection, repository: str, branch: str) -> RunRecord | None:
    """The run that may write the branch now."""
    return _first(
        connection,
        "SELECT * FROM runs WHERE repository = ? AND branch = ?"
        " AND status IN ('RUNNING', 'PAUSED')",
        repository,
        branch,
    )


def last_run(connection: sqlite3.Connection, repository: str, branch: str) -> RunRecord | None:
    """The run that was started last on the branch, in any state."""
    return _first(
        connection,
        "SELECT * FROM runs WHERE repository = ? AND branch = ? ORDER BY position DESC LIMIT 1",
        repository,
        branch,
    )


def newest_resumable(connection: sqlite3.Connection, target: str | None) -> RunRecord | None:
    """The newest unfinished run of that target or pipeline name that is not superseded."""
    return _first(
        connection,
        "SELECT * FROM runs AS mine"  # noqa: S608 - a constant
        " WHERE status IN ('RUNNING', 'PAUSED', 'FAILED', 'TIMED_OUT')"
        " AND (?1 IS NULL OR ?1 IN (json_extract(plan, '$.target'), json_extract(plan, '$.name')))"
        f" AND NOT EXISTS ({_SUPERSEDING}) ORDER BY position DESC LIMIT 1",
        target,
    )


def assert_branch_free(connection: sqlite3.Connection, workspace: WorkspaceRef | None) -> None:
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


def assert_not_superseded(connection: sqlite3.Connection, run: RunRecord) -> None:
    """Raise RunError if another run has published on the branch since this run started.

    To this run's next attempt, that publication would look abandoned; the attempt would undo it.
    """
    (other,) = connection.execute(
        f"SELECT ({_SUPERSEDING} ORDER BY accepted.rowid DESC LIMIT 1)"  # noqa: S608 - a constant
        " FROM runs AS mine WHERE mine.id = ?",
        (run.id,),
    ).fetchone()
    if other is not None:
        raise RunError(
            f"run {run.id} can't be resumed: run {other} has published on its branch since",
            fix="start a new run with --from-head, from the branch's present head",
        )


def _first(connection: sqlite3.Connection, sql: str, *values: str | None) -> RunRecord | None:
    row = connection.execute(sql, values).fetchone()
    return None if row is None else run_of(connection, row)
