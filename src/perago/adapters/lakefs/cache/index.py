"""Which object lies where in which pack, and which packs were used last: a SQLite file.

Every error in here is for the cache to swallow.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perago.adapters.local_io.sqlite import Database, ErrorKind, Schema, kind_of_error
from perago.errors import StoreError, StoreFormatError, StoreUnavailableError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from perago.model.commit import ObjectEntry

FORMAT = 1
_WAIT_SECONDS = 5.0  # for other processes; after that, something is kept less, or found less often

_TABLES = f"""
PRAGMA user_version = {FORMAT};
CREATE TABLE pack (
    name TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    used_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE object (
    location TEXT NOT NULL,
    checksum TEXT NOT NULL,
    size INTEGER NOT NULL,
    pack TEXT NOT NULL REFERENCES pack ON DELETE CASCADE,
    start INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    PRIMARY KEY (location, checksum, size)
) WITHOUT ROWID;
CREATE INDEX object_by_pack ON object (pack);
"""


@dataclass(frozen=True, slots=True)
class PackPosition:
    """Where an object's bytes are, and what their sha256 has to be."""

    pack: str
    start: int
    sha256: str


def _check(connection: sqlite3.Connection, path: str) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != FORMAT:
        raise StoreFormatError(f"the cache's index {path!r} has format {found}, not {FORMAT}")


def _failure(path: str, error: sqlite3.Error, *, committing: bool = False) -> StoreError:
    del committing  # what may have been written is the same as what wasn't: it is looked up
    if kind_of_error(error) is ErrorKind.DAMAGE:
        return StoreFormatError(f"the cache's index {path!r} is damaged: {error}")
    return StoreUnavailableError(f"the cache's index {path!r} failed: {error}")


class Index:
    """The file may be removed, by anybody, at any time: then it starts empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = Database(path, Schema(_TABLES, _check, _failure), durable=False)
        self._inode: int | None = None

    def close(self) -> None:
        self._database.close()

    def places(self, entries: Sequence[ObjectEntry]) -> list[PackPosition | None]:
        """Of each of them, or None."""
        self._look_where_it_is()
        with self._database.reading() as connection:
            found = (
                connection.execute(
                    "SELECT pack, start, sha256 FROM object"
                    " WHERE location = ? AND checksum = ? AND size = ?",
                    (entry.location, entry.checksum, entry.size),
                ).fetchone()
                for entry in entries
            )
            return [None if row is None else PackPosition(*row) for row in found]

    def add(
        self,
        pack: str,
        size: int,
        places: Iterable[tuple[ObjectEntry, PackPosition]],
        *,
        limit: int,
    ) -> list[str]:
        """Make a pack's objects known; the packs that had to go for it, whose files now must."""
        self._look_where_it_is()
        with self._database.writing(wait_seconds=_WAIT_SECONDS) as connection:
            connection.execute(
                "INSERT INTO pack VALUES (:name, :size, :now)"
                " ON CONFLICT (name) DO UPDATE SET size = :size, used_at = :now",
                {"name": pack, "size": size, "now": time.time()},
            )
            connection.executemany(
                "INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (entry.location, entry.checksum, entry.size, pack, place.start, place.sha256)
                    for entry, place in places
                ),
            )
            return _make_room(connection, limit)

    def superfluous(self, limit: int) -> list[str]:
        """The packs that would have to go for the others to fit."""
        self._look_where_it_is()
        with self._database.reading() as connection:
            return _superfluous(connection, limit)

    def make_room(self, limit: int) -> list[str]:
        """Forget those; their files now must go."""
        self._look_where_it_is()
        with self._database.writing(wait_seconds=_WAIT_SECONDS) as connection:
            return _make_room(connection, limit)

    def touch(self, packs: Iterable[str]) -> None:
        """Remember that they were used just now."""
        now = time.time()
        with self._database.writing(wait_seconds=_WAIT_SECONDS) as connection:
            connection.executemany(
                "UPDATE pack SET used_at = ? WHERE name = ?", ((now, pack) for pack in packs)
            )

    def forget(self, entries: Iterable[ObjectEntry]) -> None:
        with self._database.writing(wait_seconds=_WAIT_SECONDS) as connection:
            connection.executemany(
                "DELETE FROM object WHERE location = ? AND checksum = ? AND size = ?",
                ((entry.location, entry.checksum, entry.size) for entry in entries),
            )

    def packs(self) -> set[str]:
        self._look_where_it_is()
        return {row["name"] for row in self._database.query("SELECT name FROM pack")}

    def roomy_pack(self, below: int) -> str | None:
        """One that is smaller than this, and so worth adding to."""
        self._look_where_it_is()
        found = self._database.query(
            "SELECT name FROM pack WHERE size < ? ORDER BY used_at DESC LIMIT 1", below
        )
        return found[0]["name"] if found else None

    def start_over(self) -> None:
        """Remove a file that can't be used. The packs it knew of are found to be nobody's."""
        self._database.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()

    def _look_where_it_is(self) -> None:
        """Leave a file that isn't there any more; open connections would go on using it."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = None
        if inode != self._inode or inode is None:
            self._database.close()
            self._database.connection()
            self._inode = self._path.stat().st_ino


def _make_room(connection: sqlite3.Connection, limit: int) -> list[str]:
    gone = _superfluous(connection, limit)
    connection.executemany("DELETE FROM pack WHERE name = ?", ((name,) for name in gone))
    return gone


def _superfluous(connection: sqlite3.Connection, limit: int) -> list[str]:
    packs = connection.execute("SELECT name, size FROM pack ORDER BY used_at DESC").fetchall()
    gone, total = [], 0
    for pack in packs:
        total += pack["size"]
        if total > limit:
            gone.append(pack["name"])
    return gone
