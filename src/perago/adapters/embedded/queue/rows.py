"""The queue's tables, and their rows as values of the model."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perago.adapters.embedded.queue.policy import Timing, step_of
from perago.adapters.local_io.sqlite import BUSY_SECONDS, ErrorKind, Schema, kind_of_error
from perago.errors import (
    OrchestratorError,
    OrchestratorUnavailableError,
    RunNotFoundError,
    StoreFormatError,
    StoreFullError,
    UnknownAttemptError,
)
from perago.model.attempt import Attempt, AttemptSnapshot, TaskStatus
from perago.model.run import AttemptRecord, ResultField, RunPlan, RunRecord, RunStatus, StepPlan
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from perago.errors import PeragoError
    from perago.model.controls import TaskControls


# --- the tables ----------------------------------------------------------------------------------

FORMAT = 1
_APPLICATION_ID = 0x50524751  # "PRGQ": distinguishes this file from other SQLite databases
# attempts.queued: whether a poll may deliver it. A column of its own, because an IN_PROGRESS task
#   can be requeued while its first worker still runs.
# attempts.heard_at: last poll or heartbeat; the lease counts from here.
# attempts.chain_started_at: when the step's first attempt was scheduled, or the run was resumed.
# attempts.look_at: the next deadline, so that only what may be overdue is read.
_TABLES = """
CREATE TABLE runs (
    position   INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    plan       TEXT NOT NULL,
    status     TEXT NOT NULL,
    repository TEXT,
    branch     TEXT,
    ref        TEXT,
    reason     TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
);
CREATE UNIQUE INDEX one_active_run_per_branch ON runs (repository, branch)
    WHERE status IN ('RUNNING', 'PAUSED');
CREATE TABLE attempts (
    task_id          TEXT PRIMARY KEY,
    run_id           TEXT NOT NULL REFERENCES runs (id),
    reference        TEXT NOT NULL,
    task_name        TEXT NOT NULL,
    seq              INTEGER NOT NULL,
    iteration        INTEGER NOT NULL,
    retry_count      INTEGER NOT NULL,
    status           TEXT NOT NULL,
    queued           INTEGER NOT NULL,
    scheduled_at     REAL NOT NULL,
    due_at           REAL NOT NULL,
    chain_started_at REAL NOT NULL,
    started_at       REAL,
    heard_at         REAL,
    ended_at         REAL,
    look_at          REAL,
    worker_id        TEXT,
    poll_count       INTEGER NOT NULL DEFAULT 0,
    polled_at        REAL,
    reason           TEXT,
    input            TEXT NOT NULL,
    output           TEXT NOT NULL DEFAULT '{}',
    UNIQUE (run_id, seq)
);
CREATE INDEX attempts_to_poll ON attempts (task_name, due_at) WHERE queued = 1;
CREATE INDEX attempts_to_look_at ON attempts (look_at)
    WHERE look_at IS NOT NULL AND status IN ('SCHEDULED', 'IN_PROGRESS');
CREATE INDEX attempts_by_task ON attempts (task_name, status, polled_at);
"""
_STAMP = f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {FORMAT};"


def check_format(connection: sqlite3.Connection, path: str) -> None:
    """Raise StoreFormatError unless the database is a queue in this version's format."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION_ID:
        raise StoreFormatError(
            f"{path!r} is a SQLite database, but not a Perago queue",
            fix="point Perago at another directory, or move that file away",
        )
    if found != FORMAT:
        raise StoreFormatError(
            f"the queue at {path!r} has format {found}, this Perago reads format {FORMAT}",
            fix="use the Perago version that wrote it, or start with a new directory",
        )


def database_error(
    path: str,
    error: sqlite3.Error,
    *,
    committing: bool = False,  # noqa: ARG001 - the caller repeats the call
) -> PeragoError:
    """Our error for SQLite's."""
    match kind_of_error(error):
        case ErrorKind.BUSY:
            return OrchestratorUnavailableError(
                f"the queue at {path!r} stayed locked for {BUSY_SECONDS:.0f} seconds",
                fix="look for a stopped process that holds it, then try again",
            )
        case ErrorKind.DISK | ErrorKind.NO_ROOM_OR_PERMISSION:
            return StoreFullError(
                f"the queue at {path!r} can't be read or written: {error}",
                fix="free some disk space and check the directory's permissions",
            )
        case ErrorKind.DAMAGE:
            return StoreFormatError(
                f"{path!r} is not a readable SQLite database: {error}",
                fix="restore it from a backup, or move it away to start with an empty queue",
            )
        case ErrorKind.OTHER:
            return OrchestratorError(f"the queue at {path!r} failed: {error}")


SCHEMA = Schema(_TABLES + _STAMP, check_format, database_error)


# --- rows as the model's values ------------------------------------------------------------------


def load_run(connection: sqlite3.Connection, run_id: str) -> RunRecord:
    """Raises RunNotFoundError."""
    row = connection.execute("SELECT * FROM runs WHERE id = ?", (run_id,)).fetchone()
    if row is None:
        raise RunNotFoundError(f"there is no run {run_id!r}", fix="`perago runs` lists all runs")
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
    """Everything the queue stores about an attempt."""
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


def controls_of(row: sqlite3.Row) -> TaskControls:
    """The controls of the attempt's step. The row has its run's ``plan``."""
    return step_of(decode_plan(row["plan"]), row["reference"]).controls


def snapshot_of(connection: sqlite3.Connection, row: sqlite3.Row) -> AttemptSnapshot:
    """The state that the attempt fence compares with the delivery."""
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
    """The times that the attempt's deadlines depend on."""
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


# --- a run's plan as JSON, so that a later process can continue the run ---------------------------

# Every params value is wrapped in one of these, so that a literal is never taken for a reference.
_LITERAL = "value"
_RESULT = "result_of"


def encode_plan(plan: RunPlan) -> str:
    """The plan as JSON text. Raises TypeError if a params value isn't a JSON value."""
    steps = [_encode_step(step) for step in plan.steps]
    return json.dumps({"name": plan.name, "target": plan.target, "steps": steps})


# Plans never change once stored, and every poll and report of a run needs its plan.
@lru_cache(maxsize=256)
def decode_plan(text: str) -> RunPlan:
    """The plan that :func:`encode_plan` was given."""
    raw = json.loads(text)
    steps = tuple(_decode_step(step) for step in raw["steps"])
    return RunPlan(name=raw["name"], target=raw["target"], steps=steps)


def _encode_step(step: StepPlan) -> dict[str, object]:
    return {
        "reference": step.reference,
        "task_name": step.task_name,
        "module": step.module,
        "uses_workspace": step.uses_workspace,
        "params": {name: _encode_value(value) for name, value in step.params.items()},
        "controls": step.controls.model_dump(mode="json"),
    }


def _decode_step(raw: Mapping[str, Any]) -> StepPlan:
    from perago.model.controls import TaskControls

    return StepPlan(
        reference=raw["reference"],
        task_name=raw["task_name"],
        module=raw["module"],
        uses_workspace=raw["uses_workspace"],
        params={name: _decode_value(value) for name, value in raw["params"].items()},
        controls=TaskControls.model_validate(raw["controls"]),
    )


def _encode_value(value: object) -> dict[str, object]:
    if isinstance(value, ResultField):
        return {_RESULT: value.reference, "path": list(value.path)}
    return {_LITERAL: value}


def _decode_value(raw: Mapping[str, Any]) -> object:
    if _RESULT in raw:
        return ResultField(raw[_RESULT], tuple(raw["path"]))
    return raw[_LITERAL]
