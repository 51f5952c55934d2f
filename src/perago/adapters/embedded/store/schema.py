"""The tables of ``store.db``, the number that says which they are, and what can befall them."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.local_io.file_copy import write_error
from perago.adapters.local_io.sqlite import ErrorKind, Schema, kind_of_error
from perago.errors import (
    AnswerLostError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreUnavailableError,
)
from perago.file_lock import try_lock

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator


@contextmanager
def held(path: str, *, exclusive: bool, wait_seconds: float, purpose: str) -> Iterator[None]:
    """Hold the file lock at ``path``: shared for writers, exclusive for garbage collection.

    Raises :class:`StoreUnavailableError` if it is not free within ``wait_seconds``.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_error(path, error) from error
    try:
        if not try_lock(descriptor, shared=not exclusive, timeout=wait_seconds):
            holder = "uploads are going on" if exclusive else "garbage collection is going on"
            raise StoreUnavailableError(
                f"{purpose} waited {wait_seconds:g} s for {path!r}: {holder}",
                fix="try again when that has ended",
            )
        yield
    finally:
        os.close(descriptor)


FORMAT = 1
"""Of the whole directory: tables, encodings, hashes and file layout. Changes with any of them."""
# Times are whole microseconds. `ranges` and `trees` keep their row ids: their rows are large, and
# a table without row ids would drag the bodies through every lookup.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE repositories (
    name TEXT PRIMARY KEY,
    default_branch TEXT NOT NULL,
    created_us INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE ranges (id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE trees (id TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE commits (
    id TEXT PRIMARY KEY,
    repository TEXT NOT NULL REFERENCES repositories (name),
    parents TEXT NOT NULL,
    tree TEXT NOT NULL REFERENCES trees (id),
    message TEXT NOT NULL,
    metadata TEXT NOT NULL,
    created_us INTEGER NOT NULL,
    released_us INTEGER NOT NULL
);
CREATE INDEX commits_by_tree ON commits (tree);
CREATE TABLE branches (
    id INTEGER PRIMARY KEY,
    repository TEXT NOT NULL REFERENCES repositories (name),
    name TEXT NOT NULL,
    head TEXT NOT NULL REFERENCES commits (id),
    hidden INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    UNIQUE (repository, name)
);
CREATE INDEX branches_by_head ON branches (head);
CREATE TABLE uncommitted (
    branch INTEGER NOT NULL REFERENCES branches (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    sha256 TEXT,
    size INTEGER NOT NULL,
    PRIMARY KEY (branch, key)
) WITHOUT ROWID;
"""
_STAMP = f"INSERT INTO meta VALUES ('format', '{FORMAT}');"  # noqa: S608 - a constant


def check_format(connection: sqlite3.Connection, path: str) -> None:
    """Raise StoreFormatError unless the database is a store's, of this version."""
    found = _format_of(connection)
    if found != str(FORMAT):
        raise StoreFormatError(
            f"the store at {path!r} has format {found}, and this version of Perago reads and "
            f"writes format {FORMAT}",
            fix="use the version of Perago that wrote it, or export its commits with that version "
            "and import them into a new store",
        )


def _format_of(connection: sqlite3.Connection) -> str:
    has_meta = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    row = has_meta and connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    return str(row[0]) if row else "unknown (it has no format number)"


def database_error(path: str, error: sqlite3.Error, *, committing: bool = False) -> StoreError:
    """The error for a statement on the database at ``path`` that SQLite refused.

    ``committing`` says that it was the COMMIT itself: if the disk failed there, the transaction's
    last frame may be on it, and a later recovery may still find it.
    """
    said = f"{path!r}: {error}"
    match kind_of_error(error):
        case ErrorKind.BUSY:
            return StoreUnavailableError(
                f"another process held the store for too long: {said}",
                fix="find what is writing to the store, or try again",
            )
        case ErrorKind.DISK if committing:
            return AnswerLostError(
                f"the disk failed while a commit was being written: {said}",
                fix="check that filesystem, then look at the branch: the change may be there",
            )
        case ErrorKind.DISK | ErrorKind.NO_ROOM_OR_PERMISSION:
            return StoreFullError(
                f"can't write the store's database {said}",
                fix="free space on that filesystem and let this user write there, then try again",
            )
        case ErrorKind.DAMAGE:
            return StoreFormatError(
                f"the store's database can't be read: {said}",
                fix="restore the store's directory from a backup, or choose another one",
            )
        case ErrorKind.OTHER:
            return StoreError(f"the store's database failed: {said}")


SCHEMA = Schema(_TABLES + _STAMP, check_format, database_error)
