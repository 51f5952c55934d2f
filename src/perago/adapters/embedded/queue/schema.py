"""The queue's tables, the number that says which they are, and what can befall them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.adapters.foundation.database import BUSY_SECONDS, Contents, Trouble, trouble_of
from perago.errors import (
    OrchestratorError,
    OrchestratorUnavailableError,
    StoreFormatError,
    StoreFullError,
)

if TYPE_CHECKING:
    import sqlite3

    from perago.errors import PeragoError

FORMAT = 1
_APPLICATION_ID = 0x50524751  # "PRGQ": tells this file from any other SQLite database

# attempts.queued: whether a poll may take it. Its own column because an IN_PROGRESS task can be
#   put back while its first worker still runs.
# attempts.heard_at: last poll or heartbeat; the lease counts from here.
# attempts.chain_started_at: when the step's first attempt was scheduled, or the run was resumed.
# attempts.look_at: the next deadline, so that a sweep reads only what may be overdue.
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
    """Raise StoreFormatError unless the database is a queue of this version."""
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


def database_failure(
    path: str,
    error: sqlite3.Error,
    *,
    committing: bool = False,  # noqa: ARG001 - whoever asks the queue again gets the same answer
) -> PeragoError:
    """The error for a statement on the database at ``path`` that SQLite refused."""
    match trouble_of(error):
        case Trouble.BUSY:
            return OrchestratorUnavailableError(
                f"the queue at {path!r} stayed locked for {BUSY_SECONDS:.0f} seconds",
                fix="look for a stopped process that holds it, then try again",
            )
        case Trouble.DISK | Trouble.NO_ROOM_OR_PERMISSION:
            return StoreFullError(
                f"the queue at {path!r} can't be read or written: {error}",
                fix="free some disk space and check the directory's permissions",
            )
        case Trouble.DAMAGE:
            return StoreFormatError(
                f"{path!r} is not a readable SQLite database: {error}",
                fix="restore it from a backup, or move it away to start with an empty queue",
            )
        case Trouble.OTHER:
            return OrchestratorError(f"the queue at {path!r} failed: {error}")


CONTENTS = Contents(_TABLES + _STAMP, check_format, database_failure)
