"""Repositories, branches and commits as rows of the database, and how a ref becomes a commit."""

from __future__ import annotations

import hashlib
import json
import re
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

from perago.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    RepositoryNotFoundError,
    RuntimeConfigError,
    StoreRefusedError,
)
from perago.model.commit import Branch, Commit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from perago.adapters.embedded.store.trees import Change
    from perago.adapters.local_io.sqlite import Database


# --- Which names a repository, a branch and an object may have: lakeFS's rules, so that ---
_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)


def check_repository_name(name: str) -> None:
    """Raises :class:`RuntimeConfigError` for a name no repository can have."""
    if not _REPOSITORY.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} can't be the name of a repository",
            fix="use 3 to 63 lower-case letters, digits and '-', not starting with '-'",
        )


def check_branch_name(name: str) -> None:
    """Raises :class:`RuntimeConfigError` for a name no branch can have."""
    if not _BRANCH.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} can't be the name of a branch",
            fix="use letters, digits, '_' and '-', not starting with '-'",
        )


def check_key(key: str) -> None:
    """Raises :class:`StoreRefusedError` for a key that is no text; any other one may be stored."""
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


COMMIT_COLUMNS = "id, parents, tree, message, metadata, created_us"
MICROSECONDS = 1_000_000


class BranchRow(NamedTuple):
    """A branch's row id and the id of its head."""

    id: int
    head: str


class Resolved(NamedTuple):
    """What a ref stands for: a commit and, if it was named by a branch, that branch."""

    commit: Commit
    branch: BranchRow | None


class Refs:
    """Reads in the calling thread's transaction, if there is one."""

    def __init__(self, database: Database) -> None:
        self._query = database.query

    def resolve(self, repository: str, ref: str) -> Resolved:
        """Raises RepositoryNotFoundError, or CommitNotFoundError if ref is neither id nor branch.

        An id comes before a branch of that name: nobody can put something else in its place.
        """
        if commit := self.find_commit(repository, ref):
            return Resolved(commit, None)
        try:
            branch = self.branch(repository, ref)
        except BranchNotFoundError:
            raise CommitNotFoundError(
                f"repository {repository!r} has no commit and no branch {ref!r}",
                fix="look for it in `perago history`",
            ) from None
        return Resolved(self.commit(repository, branch.head), branch)

    def find_commit(self, repository: str, commit: str) -> Commit | None:
        """The commit of that id, if the repository has it."""
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
            fix="look for it in `perago history`",
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
        """By name. Raises RepositoryNotFoundError."""
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
        """What was put on or removed from a branch since its head, in key order."""
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
    """The hash of all that a commit says, in the one spelling of it that counts."""
    said = {
        "repository": repository,
        "parents": list(parents),
        "tree": tree,
        "message": message,
        "metadata": dict(metadata),
        "created_us": created_us,
    }
    canonical = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
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
    """Write a commit whose tree is written already; the very same one again is that one."""
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
