"""Garbage collection: mark what branches and young commits reach, then delete the rest."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.adapters.embedded.store.trees import EMPTY, decode_range, decode_tree
from perago.adapters.local_io.file_copy import write_error

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from perago.adapters.embedded.store.blobs import Blobs
    from perago.adapters.local_io.sqlite import Database

_WAIT_FOR_UPLOADS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class GcReport:
    """What a collection removed or, in a dry run, would remove."""

    commits: int
    trees: int
    ranges: int
    objects: int
    bytes: int
    temporary_files: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class _Garbage:
    """Ids of rows that nothing refers to, and the objects that something refers to."""

    commits: list[str]
    trees: list[str]
    ranges: list[str]
    referenced_objects: set[bytes]


def collect(database: Database, blobs: Blobs, before_us: int, *, dry_run: bool) -> GcReport:
    """Delete what no branch reaches and no branch needed since ``before_us``.

    Rows go first, then files: after an interruption at any point, no remaining row refers to bytes
    that are gone. Under the exclusive lock no upload is running, so every file in ``tmp/`` belongs
    to a dead writer, and no writer relies on an object without rows.
    """
    with blobs.locked("garbage collection", shared=False, wait_seconds=_WAIT_FOR_UPLOADS_SECONDS):
        if dry_run:
            with database.reading() as connection:
                garbage = _find(connection, before_us)
        else:
            with database.writing() as connection:
                garbage = _find(connection, before_us)
                _delete(connection, garbage)
        objects = [
            (blobs.path_of(sha256), size)
            for sha256, size in blobs.stored()
            if bytes.fromhex(sha256) not in garbage.referenced_objects
        ]
        leftovers = blobs.leftovers()
        if not dry_run:
            _remove([*(path for path, _ in objects), *leftovers])
    return GcReport(
        commits=len(garbage.commits),
        trees=len(garbage.trees),
        ranges=len(garbage.ranges),
        objects=len(objects),
        bytes=sum(size for _, size in objects),
        temporary_files=len(leftovers),
        dry_run=dry_run,
    )


def _find(connection: sqlite3.Connection, before_us: int) -> _Garbage:
    commits = _reachable_commits(connection, before_us)
    # The empty tree always stays: it is the base of a merge without a common ancestor.
    trees = {EMPTY.id}
    garbage_commits = []
    for commit, tree in connection.execute("SELECT id, tree FROM commits"):
        if commit in commits:
            trees.add(tree)
        else:
            garbage_commits.append(commit)
    ranges: set[str] = set()
    garbage_trees = []
    for tree, body in connection.execute("SELECT id, body FROM trees"):
        if tree in trees:
            ranges.update(span.id for span in decode_tree(body))
        else:
            garbage_trees.append(tree)
    objects = {
        bytes.fromhex(sha256)
        for (sha256,) in connection.execute(
            "SELECT sha256 FROM uncommitted WHERE sha256 IS NOT NULL"
        )
    }
    garbage_ranges = []
    for span, body in connection.execute("SELECT id, body FROM ranges"):
        if span in ranges:
            objects.update(bytes.fromhex(sha256) for _, sha256, _ in decode_range(body))
        else:
            garbage_ranges.append(span)
    return _Garbage(garbage_commits, garbage_trees, garbage_ranges, objects)


def _reachable_commits(connection: sqlite3.Connection, before_us: int) -> set[str]:
    """Heads, young commits, and all their ancestors."""
    parents = {
        commit: json.loads(text)
        for commit, text in connection.execute("SELECT id, parents FROM commits")
    }
    waiting = [head for (head,) in connection.execute("SELECT head FROM branches")]
    waiting += [
        commit
        for (commit,) in connection.execute(
            "SELECT id FROM commits WHERE max(created_us, released_us) >= ?", (before_us,)
        )
    ]
    reached: set[str] = set()
    while waiting:
        commit = waiting.pop()
        if commit not in reached and commit in parents:
            reached.add(commit)
            waiting += parents[commit]
    return reached


def _delete(connection: sqlite3.Connection, garbage: _Garbage) -> None:
    for sql, ids in (
        ("DELETE FROM commits WHERE id = ?", garbage.commits),
        ("DELETE FROM trees WHERE id = ?", garbage.trees),
        ("DELETE FROM ranges WHERE id = ?", garbage.ranges),
    ):
        connection.executemany(sql, [(name,) for name in ids])


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        try:
            os.unlink(path)  # noqa: PTH108 - a Path would cost as much as this
        except OSError as error:
            raise write_error(path, error) from error
