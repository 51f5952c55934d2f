"""``store.db``: its tables, the rules for names, and repositories, branches and commits as rows.

Refs resolve to commits here. Trees are rows too, but :mod:`~perago.adapters.embedded.store.trees`
reads and writes those.
"""

from __future__ import annotations

import hashlib
import json
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from perago.adapters.local_io.sqlite import ErrorKind, Schema, kind_of_error
from perago.errors import (
    AnswerLostError,
    BranchNotFoundError,
    CommitNotFoundError,
    RepositoryNotFoundError,
    RuntimeConfigError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
)
from perago.model.commit import Branch, Commit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from perago.adapters.embedded.store.trees import Change
    from perago.adapters.local_io.sqlite import Database


# --- the tables of store.db ----------------------------------------------------------------------

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
    """Raise StoreFormatError unless the database is a store in this version's format."""
    found = _format_of(connection)
    if found != str(FORMAT):
        raise StoreFormatError(
            f"the store at {path!r} has format {found}, this Perago uses format {FORMAT}",
            fix="use the version of Perago that wrote it, or export its commits with that version "
            "and import them into a new store",
        )


def _format_of(connection: sqlite3.Connection) -> str:
    has_meta = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
    row = has_meta and connection.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    return str(row[0]) if row else "unknown (it has no format number)"


def database_error(path: str, error: sqlite3.Error, *, committing: bool = False) -> StoreError:
    """Our error for SQLite's.

    If the disk fails during the COMMIT itself (``committing``), the transaction's last frame may
    have been written, and a later recovery may still apply it.
    """
    where = f"{path!r}: {error}"
    match kind_of_error(error):
        case ErrorKind.BUSY:
            return StoreUnavailableError(
                f"another process held the store for too long: {where}",
                fix="find what is writing to the store, or try again",
            )
        case ErrorKind.DISK if committing:
            return AnswerLostError(
                f"the disk failed while a commit was being written: {where}",
                fix="check that filesystem, then look at the branch: the change may be there",
            )
        case ErrorKind.DISK | ErrorKind.NO_ROOM_OR_PERMISSION:
            return StoreFullError(
                f"can't write the store's database {where}",
                fix="free space on that filesystem and let this user write there, then try again",
            )
        case ErrorKind.DAMAGE:
            return StoreFormatError(
                f"the store's database can't be read: {where}",
                fix="restore the store's directory from a backup, or choose another one",
            )
        case ErrorKind.OTHER:
            return StoreError(f"the store's database failed: {where}")


SCHEMA = Schema(_TABLES + _STAMP, check_format, database_error)


# --- names, by lakeFS's rules, so that data can move there ----------------------------------------

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)


def check_repository_name(name: str) -> None:
    """Raise RuntimeConfigError for a name that no repository can have."""
    if not _REPOSITORY.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} can't be the name of a repository",
            fix="use 3 to 63 lower-case letters, digits and '-', not starting with '-'",
        )


def check_branch_name(name: str) -> None:
    """Raise RuntimeConfigError for a name that no branch can have."""
    if not _BRANCH.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} can't be the name of a branch",
            fix="use letters, digits, '_' and '-', not starting with '-'",
        )


def check_key(key: str) -> None:
    """Raise StoreRefusedError for a key that is not text; any other key can be stored."""
    if not key:
        problem = "it is empty"
    elif "\0" in key:
        problem = "it contains a NUL character"
    elif any("\ud800" <= character <= "\udfff" for character in key):
        problem = "it contains half a character (an unpaired surrogate)"
    else:
        return
    raise StoreRefusedError(
        f"object key {key!r} can't be stored: {problem}", fix="give that object another name"
    )


# --- refs ----------------------------------------------------------------------------------------

COMMIT_COLUMNS = "id, parents, tree, message, metadata, created_us"
MICROSECONDS = 1_000_000


class BranchRow(NamedTuple):
    """A branch's row id and the id of its head."""

    id: int
    head: str


class Resolved(NamedTuple):
    """The commit a ref refers to and, if the ref is a branch name, that branch."""

    commit: Commit
    branch: BranchRow | None


class Refs:
    """Reads repositories, branches and commits, in the calling thread's transaction if any."""

    def __init__(self, database: Database) -> None:
        self._query = database.query

    def resolve(self, repository: str, ref: str) -> Resolved:
        """A commit id comes before a branch of that name, so that an id is never hijacked.

        Raises RepositoryNotFoundError, or CommitNotFoundError if ref is neither id nor branch.
        """
        if commit := self.find_commit(repository, ref):
            return Resolved(commit, None)
        try:
            branch = self.branch(repository, ref)
        except BranchNotFoundError:
            raise CommitNotFoundError(
                f"repository {repository!r} has no commit and no branch {ref!r}",
                fix="`perago history` lists the commits",
            ) from None
        return Resolved(self.commit(repository, branch.head), branch)

    def find_commit(self, repository: str, commit: str) -> Commit | None:
        """The commit with that id, if the repository has it."""
        rows = self._query(
            f"SELECT {COMMIT_COLUMNS} FROM commits WHERE id = ? AND repository = ?",  # noqa: S608 - a constant
            commit,
            repository,
        )
        return commit_of(rows[0]) if rows else None

    def commit(self, repository: str, commit: str) -> Commit:
        """Raises RepositoryNotFoundError or CommitNotFoundError."""
        if found := self.find_commit(repository, commit):
            return found
        self.check_repository(repository)
        raise CommitNotFoundError(
            f"repository {repository!r} has no commit {commit!r}",
            fix="`perago history` lists the commits",
        )

    def branch(self, repository: str, branch: str) -> BranchRow:
        """Raises RepositoryNotFoundError or BranchNotFoundError."""
        rows = self._query(
            "SELECT id, head FROM branches WHERE repository = ? AND name = ?", repository, branch
        )
        if rows:
            return BranchRow(*rows[0])
        self.check_repository(repository)
        raise BranchNotFoundError(
            f"repository {repository!r} has no branch {branch!r}",
            fix="create it, or name one that exists",
        )

    def branches(self, repository: str, prefix: str) -> list[Branch]:
        """Branches in the order of their names. Raises RepositoryNotFoundError."""
        self.check_repository(repository)
        rows = self._query(
            "SELECT name, head FROM branches "
            "WHERE repository = ? AND substr(name, 1, ?) = ? ORDER BY name",
            repository,
            len(prefix),
            prefix,
        )
        return [Branch(name, head) for name, head in rows]

    def check_repository(self, repository: str) -> None:
        """Raises RepositoryNotFoundError."""
        if not self._query("SELECT 1 FROM repositories WHERE name = ?", repository):
            raise RepositoryNotFoundError(
                f"the store has no repository {repository!r}",
                fix="create it, or name one that exists",
            )

    def uncommitted(self, branch: BranchRow, prefix: str = "") -> list[Change]:
        """What was put on or deleted from a branch since its head, in key order."""
        rows = self._query(
            "SELECT key, sha256, size FROM uncommitted "
            "WHERE branch = ? AND substr(key, 1, ?) = ? ORDER BY key",
            branch.id,
            len(prefix),
            prefix,
        )
        return [(row[0], None if row[1] is None else tuple(row)) for row in rows]

    def first_parents(self, repository: str, start: Commit) -> Iterator[Commit]:
        """First-parent history, newest first, starting with ``start`` itself."""
        commit = start
        yield commit
        while commit.parents:
            commit = self.commit(repository, commit.parents[0])
            yield commit

    def common_ancestor(self, repository: str, one: Commit, other: Commit) -> Commit | None:
        """The nearest commit on the first-parent histories of both."""
        walks = (self.first_parents(repository, one), self.first_parents(repository, other))
        seen: tuple[set[str], set[str]] = (set(), set())
        for pair in zip_longest(*walks):
            for side, commit in enumerate(pair):
                if commit is None:
                    continue
                if commit.id in seen[1 - side]:
                    return commit
                seen[side].add(commit.id)
        return None


def commit_of(row: Any) -> Commit:
    """A commit from a row of :data:`COMMIT_COLUMNS`."""
    name, parents, tree, message, metadata, created_us = row
    return Commit(
        name,
        tuple(json.loads(parents)),
        tree,
        message,
        json.loads(metadata),
        created_us / MICROSECONDS,
    )


def commit_id(
    repository: str,
    parents: Sequence[str],
    tree: str,
    *,
    message: str,
    metadata: Mapping[str, str],
    created_us: int,
) -> str:
    """The hash of a commit's fields in their canonical JSON."""
    fields = {
        "repository": repository,
        "parents": list(parents),
        "tree": tree,
        "message": message,
        "metadata": dict(metadata),
        "created_us": created_us,
    }
    canonical = json.dumps(fields, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def insert_commit(
    connection: sqlite3.Connection,
    repository: str,
    parents: Sequence[str],
    tree: str,
    *,
    message: str,
    metadata: Mapping[str, str],
    created_us: int,
) -> Commit:
    """Write a commit whose tree is written already. Writing the same commit again is harmless."""
    name = commit_id(
        repository, parents, tree, message=message, metadata=metadata, created_us=created_us
    )
    row = (name, json.dumps(list(parents)), tree, message, json.dumps(dict(metadata)), created_us)
    connection.execute(
        f"INSERT OR IGNORE INTO commits ({COMMIT_COLUMNS}, repository, released_us) "  # noqa: S608 - a constant
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*row, repository, created_us),
    )
    return commit_of(row)


def insert_branch(
    connection: sqlite3.Connection,
    repository: str,
    branch: str,
    head: str,
    *,
    created_us: int,
    hidden: bool = False,
) -> bool:
    """Write a branch; False if the repository has one of that name."""
    inserted = connection.execute(
        "INSERT OR IGNORE INTO branches (repository, name, head, hidden, created_us) "
        "VALUES (?, ?, ?, ?, ?)",
        (repository, branch, head, hidden, created_us),
    )
    return bool(inserted.rowcount)
