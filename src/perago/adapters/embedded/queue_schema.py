"""The queue's tables, and how a database comes into being: whole, or not at all."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

from perago.errors import StoreFormatError

FORMAT = 1
_APPLICATION_ID = 0x50524751  # "PRGQ": tells this file from any other SQLite database

# attempts.queued: whether a poll may take it. Its own column because an IN_PROGRESS task can be
#   put back while its first worker still runs.
# attempts.heard_at: last poll or heartbeat; the lease counts from here.
# attempts.chain_started_at: when the step's first attempt was scheduled, or the run was resumed.
# attempts.look_at: the next deadline, so that a sweep reads only what may be overdue.
_SCHEMA = """
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


def ensure_database(path: Path) -> None:
    """Create the database unless it is there.

    It is built beside its place and linked into it, so that nobody, not even after a crash, meets
    one without tables, and of several processes that create it at once one wins.
    """
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as workshop:
        built = Path(workshop) / "queue.db"
        _build(built)
        try:
            os.link(built, path)
        except FileExistsError:
            return
        _sync_directory(path.parent)


def check_format(connection: sqlite3.Connection, path: Path) -> None:
    """Raise StoreFormatError unless the database is a queue of this version."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != _APPLICATION_ID:
        raise StoreFormatError(
            f"{path} is a SQLite database, but not a Perago queue",
            fix="point Perago at another directory, or move that file away",
        )
    if found != FORMAT:
        raise StoreFormatError(
            f"the queue at {path} has format {found}, this Perago reads format {FORMAT}",
            fix="use the Perago version that wrote it, or start with a new directory",
        )


def _build(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # The journal mode is kept in the file; set here, no later connection races to switch it.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    finally:
        connection.close()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
