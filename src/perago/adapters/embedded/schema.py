"""The tables of ``store.db`` and the number that says which tables they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.errors import StoreFormatError

if TYPE_CHECKING:
    import sqlite3

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


def ensure_schema(connection: sqlite3.Connection, root: str) -> bool:
    """Create the tables in an empty database; refuse one of another format.

    Returns whether it created them: the caller sees to it that nobody else does at that moment.
    Raises :class:`StoreFormatError`.
    """
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if not tables:
        connection.executescript(f"BEGIN IMMEDIATE;{_TABLES}")
        connection.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
        connection.execute("COMMIT")
        return True
    found = _format_of(connection)
    if found != str(FORMAT):
        raise StoreFormatError(
            f"the store at {root!r} has format {found}, and this version of Perago reads and "
            f"writes format {FORMAT}",
            fix="use the version of Perago that wrote it, or export its commits with that version "
            "and import them into a new store",
        )
    return False


def _format_of(connection: sqlite3.Connection) -> str:
    has_meta = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    row = has_meta and connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    return str(row[0]) if row else "unknown (it has no format number)"
