"""Verification: follow every reference from branch to bytes and compute every hash again."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from perago.adapters.embedded.store.refs import COMMIT_COLUMNS, commit_id
from perago.adapters.embedded.store.trees import content_id, decode_range, decode_tree
from perago.adapters.local_io.file_copy import hash_of
from perago.adapters.local_io.parallel import Tally
from perago.errors import StoreFormatError

if TYPE_CHECKING:
    import sqlite3

    from perago.adapters.embedded.store.blobs import Blobs
    from perago.adapters.embedded.store.trees import Range
    from perago.adapters.local_io.sqlite import Database
    from perago.ports.store import OnTransfer


class Damage(StrEnum):
    """What is wrong with a part of the store."""

    MISSING = "missing"
    CORRUPT = "corrupt"


@dataclass(frozen=True, slots=True)
class DamagedPart:
    """One damaged part: what it is (``object``, ``commit``, …), its id, and what is wrong."""

    damage: Damage
    kind: str
    id: str
    detail: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What was checked, and the damage. Unreferenced objects are not damage."""

    branches: int
    commits: int
    trees: int
    ranges: int
    objects: int
    bytes: int
    unreferenced_objects: int
    findings: tuple[DamagedPart, ...]

    @property
    def missing(self) -> int:
        """How many parts are referred to but missing."""
        return sum(part.damage is Damage.MISSING for part in self.findings)

    @property
    def corrupt(self) -> int:
        """How many parts exist but don't match their hash."""
        return sum(part.damage is Damage.CORRUPT for part in self.findings)

    @property
    def clean(self) -> bool:
        """Whether nothing is missing and nothing corrupt."""
        return not self.findings


class _Expected(NamedTuple):
    """The size an object should have, and one key that refers to it."""

    size: int
    key: str


def verify(database: Database, blobs: Blobs, progress: OnTransfer | None) -> VerifyReport:
    """Check everything. The caller holds the shared lock, so that nothing is collected meanwhile.

    Bytes are streamed; only a hash, a size and a key per distinct object are held in memory.
    """
    inspection = _Inspection()
    try:
        with database.reading() as connection:
            inspection.run(connection)
    except StoreFormatError as error:
        inspection.damaged.append(
            DamagedPart(Damage.CORRUPT, "database", database.path, error.message)
        )
    objects = inspection.objects
    total_bytes = sum(expected.size for expected in objects.values())
    tally = Tally(progress, objects=len(objects), total_bytes=total_bytes)
    for sha256, expected in objects.items():
        if damaged := _check_object(blobs, sha256, expected, tally):
            inspection.damaged.append(damaged)
        tally.add_object()
    tally.end()
    return VerifyReport(
        **inspection.counts,
        objects=len(objects),
        bytes=total_bytes,
        unreferenced_objects=sum(sha256 not in objects for sha256, _ in blobs.stored()),
        findings=tuple(inspection.damaged),
    )


class _Inspection:
    """One pass over the database, from commits down to the objects that ranges refer to."""

    def __init__(self) -> None:
        self.damaged: list[DamagedPart] = []
        self.objects: dict[str, _Expected] = {}
        self.counts = dict.fromkeys(("branches", "commits", "trees", "ranges"), 0)

    def run(self, connection: sqlite3.Connection) -> None:
        """Check all rows. What was seen before an error is kept."""
        for (problem,) in connection.execute("PRAGMA quick_check"):
            if problem != "ok":
                self._corrupt("database", "store.db", problem)
        commits, trees = self._check_commits(connection)
        self._check_branches(connection, commits)
        ranges = self._check_trees(connection, trees)
        self._check_ranges(connection, ranges)
        for key, sha256, size in connection.execute(
            "SELECT key, sha256, size FROM uncommitted WHERE sha256 IS NOT NULL"
        ):
            self.objects.setdefault(sha256, _Expected(size, key))

    def _check_commits(self, connection: sqlite3.Connection) -> tuple[set[str], dict[str, str]]:
        trees: dict[str, str] = {}
        parents_of: dict[str, list[str]] = {}
        for repository, *row in connection.execute(
            f"SELECT repository, {COMMIT_COLUMNS} FROM commits"  # noqa: S608 - a constant
        ):
            name, parents, tree, message, metadata, created_us = row
            trees.setdefault(tree, name)
            try:
                parents_of[name] = json.loads(parents)
                fields = json.loads(metadata)
            except ValueError:
                parents_of[name] = []
                self._corrupt("commit", name, "its parents or metadata aren't JSON")
                continue
            found = commit_id(
                repository,
                parents_of[name],
                tree,
                message=message,
                metadata=fields,
                created_us=created_us,
            )
            if found != name:
                self._corrupt("commit", name, f"its content hashes to {found}")
        for name, parents in parents_of.items():
            for parent in parents:
                if parent not in parents_of:
                    self._missing("commit", parent, f"it is the parent of {name}")
        self.counts["commits"] = len(parents_of)
        return set(parents_of), trees

    def _check_branches(self, connection: sqlite3.Connection, commits: set[str]) -> None:
        rows = connection.execute("SELECT repository, name, head FROM branches").fetchall()
        for repository, name, head in rows:
            if head not in commits:
                self._missing("commit", head, f"it is the head of {repository}/{name}")
        self.counts["branches"] = len(rows)

    def _check_trees(
        self, connection: sqlite3.Connection, named: dict[str, str]
    ) -> dict[str, Range]:
        """``named`` maps a tree to a commit that has it; returns the ranges of all trees."""
        ranges: dict[str, Range] = {}
        seen = set()
        for name, body in connection.execute("SELECT id, CAST(body AS BLOB) FROM trees"):
            seen.add(name)
            if content_id(body) != name:
                self._corrupt("tree", name, f"its content hashes to {content_id(body)}")
            else:
                ranges.update((span.id, span) for span in decode_tree(body))
        for name in named.keys() - seen:
            self._missing("tree", name, f"it is the tree of commit {named[name]}")
        self.counts["trees"] = len(seen)
        return ranges

    def _check_ranges(self, connection: sqlite3.Connection, named: dict[str, Range]) -> None:
        seen = set()
        for name, body in connection.execute("SELECT id, CAST(body AS BLOB) FROM ranges"):
            seen.add(name)
            if content_id(body) != name:
                self._corrupt("range", name, f"its content hashes to {content_id(body)}")
                continue
            entries = decode_range(body)
            span = named.get(name)
            if span and (span.first, span.last, span.length) != (
                entries[0][0],
                entries[-1][0],
                len(entries),
            ):
                self._corrupt("range", name, "a tree lists other keys for it")
            for key, sha256, size in entries:
                self.objects.setdefault(sha256, _Expected(size, key))
        for name in named.keys() - seen:
            self._missing("range", name, f"a tree has it for the keys from {named[name].first!r}")
        self.counts["ranges"] = len(seen)

    def _missing(self, kind: str, name: str, detail: str) -> None:
        self.damaged.append(DamagedPart(Damage.MISSING, kind, name, detail))

    def _corrupt(self, kind: str, name: str, detail: str) -> None:
        self.damaged.append(DamagedPart(Damage.CORRUPT, kind, name, detail))


def _check_object(
    blobs: Blobs, sha256: str, expected: _Expected, tally: Tally
) -> DamagedPart | None:
    where = f"key {expected.key!r}"
    try:
        source = os.open(blobs.path_of(sha256), os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return DamagedPart(Damage.MISSING, "object", sha256, f"{where}: {error.strerror}")
    try:
        size, found = hash_of(source, tally.add_bytes)
    except OSError as error:
        return DamagedPart(Damage.CORRUPT, "object", sha256, f"{where}: {error.strerror}")
    finally:
        os.close(source)
    if (size, found) != (expected.size, sha256):
        seen = f"{where}: {size} bytes, hash {found}; should be {expected.size} bytes"
        return DamagedPart(Damage.CORRUPT, "object", sha256, seen)
    return None
