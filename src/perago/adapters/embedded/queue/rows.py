"""The queue's rows as the model's values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue.plan import decode_plan
from perago.adapters.embedded.queue.policy import Timing
from perago.errors import RunNotFoundError, UnknownAttemptError
from perago.model.attempt import Attempt, AttemptSnapshot, TaskStatus
from perago.model.run import AttemptRecord, RunRecord, RunStatus
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    import sqlite3


def load_run(connection: sqlite3.Connection, run_id: str) -> RunRecord:
    """Raises RunNotFoundError."""
    row = connection.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFoundError(
            f"there is no run {run_id!r}", fix="`perago runs` lists the runs there are"
        )
    return run_of(connection, row)


def run_of(connection: sqlite3.Connection, row: sqlite3.Row) -> RunRecord:
    """The run of a ``runs`` row, with all its attempts in the order they were scheduled."""
    attempts = connection.execute(
        "SELECT * FROM attempts WHERE run_id = ? ORDER BY seq", (row["id"],)
    )
    return RunRecord(
        id=row["id"],
        plan=decode_plan(row["plan"]),
        status=RunStatus(row["status"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        workspace=_workspace_of(row),
        reason=row["reason"],
        attempts=tuple(record_of(attempt) for attempt in attempts),
    )


def load_attempt(connection: sqlite3.Connection, task_id: str) -> sqlite3.Row:
    """The attempt's row, with its run's ``plan``. Raises UnknownAttemptError."""
    row: sqlite3.Row | None = connection.execute(
        "SELECT attempts.*, runs.plan FROM attempts JOIN runs ON runs.id = attempts.run_id"
        " WHERE attempts.task_id = ?",
        (task_id,),
    ).fetchone()
    if row is None:
        raise UnknownAttemptError(
            f"the queue has no task {task_id!r}",
            fix="check that the worker uses the queue that delivered the task",
        )
    return row


def record_of(row: sqlite3.Row) -> AttemptRecord:
    """Everything that is remembered of an attempt."""
    return AttemptRecord(
        attempt=attempt_of(row),
        status=TaskStatus(row["status"]),
        scheduled_at=row["scheduled_at"],
        due_at=row["due_at"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        worker_id=row["worker_id"],
        poll_count=row["poll_count"],
        reason=row["reason"],
        input=json.loads(row["input"]),
        output=json.loads(row["output"]),
    )


def attempt_of(row: sqlite3.Row) -> Attempt:
    """The attempt's identity."""
    return Attempt(
        workflow_instance_id=row["run_id"],
        reference_task_name=row["reference"],
        seq=row["seq"],
        iteration=row["iteration"],
        task_id=row["task_id"],
        retry_count=row["retry_count"],
        task_name=row["task_name"],
    )


def snapshot_of(connection: sqlite3.Connection, row: sqlite3.Row) -> AttemptSnapshot:
    """What the attempt fence compares."""
    (newest,) = connection.execute(
        "SELECT max(seq) FROM attempts WHERE run_id = ? AND reference = ? AND iteration = ?",
        (row["run_id"], row["reference"], row["iteration"]),
    ).fetchone()
    return AttemptSnapshot(
        status=TaskStatus(row["status"]),
        workflow_instance_id=row["run_id"],
        task_id=row["task_id"],
        retry_count=row["retry_count"],
        poll_count=row["poll_count"],
        worker_id=row["worker_id"],
        is_latest=row["seq"] == newest,
    )


def timing_of(row: sqlite3.Row) -> Timing:
    """What the attempt's deadlines depend on."""
    return Timing(
        due_at=row["due_at"],
        chain_started_at=row["chain_started_at"],
        started_at=row["started_at"],
        heard_at=row["heard_at"],
    )


def _workspace_of(row: sqlite3.Row) -> WorkspaceRef | None:
    if row["repository"] is None:
        return None
    return WorkspaceRef(
        repository=row["repository"], branch=row["branch"], ref_type="commit", ref=row["ref"]
    )
