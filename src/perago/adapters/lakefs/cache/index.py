"""The index of the cache, in SQLite: where each object is, and when each pack was last used.

The cache ignores every error raised here.
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
_WAIT_SECONDS = 5.0  # for other processes' transactions

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
    """Where an object's bytes are in a pack, and their sha256."""

    pack: str
    start: int
    sha256: str


def _check(connection: sqlite3.Connection, path: str) -> None:
    found = connection.execute("PRAGMA user_version").fetchone()[0]
    if found != FORMAT:
        raise StoreFormatError(f"the cache's index {path!r} has format {found}, not {FORMAT}")


def _failure(path: str, error: sqlite3.Error, *, committing: bool = False) -> StoreError:
    del committing  # an unknown commit does no harm: entries are verified when used
    if kind_of_error(error) is ErrorKind.DAMAGE:
        return StoreFormatError(f"the cache's index {path!r} is damaged: {error}")
    return StoreUnavailableError(f"the cache's index {path!r} failed: {error}")


class Index:
    """The file may be removed at any time; then the index starts empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = Database(path, Schema(_TABLES, _check, _failure), durable=False)
        self._inode: int | None = None

    def close(self) -> None:
        self._database.close()

    def positions(self, entries: Sequence[ObjectEntry]) -> list[PackPosition | None]:
        """The position of each entry, or None."""
        self._reopen_if_replaced()
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
        objects: Iterable[tuple[ObjectEntry, PackPosition]],
        *,
        limit: int,
    ) -> list[str]:
        """Add a pack's objects; return the packs over the limit, whose files the caller removes."""
        self._reopen_if_replaced()
        with self._database.writing(wait_seconds=_WAIT_SECONDS) as connection:
            connection.execute(
                "INSERT INTO pack VALUES (:name, :size, :now)"
                " ON CONFLICT (name) DO UPDATE SET size = :size, used_at = :now",
                {"name": pack, "size": size, "now": time.time()},
            )
            connection.executemany(
                "INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?, ?, ?)",
                (
                    (entry.location, entry.checksum, entry.size, pack, at.start, at.sha256)
                    for entry, at in objects
                ),
            )
            return _remove_packs_over(connection, limit)

    def packs_over(self, limit: int) -> list[str]:
        """The least recently used packs, without which the others fit the limit."""
        self._reopen_if_replaced()
        with self._database.reading() as connection:
            return _packs_over(connection, limit)

    def remove_packs_over(self, limit: int) -> list[str]:
        """Remove these packs from the index; return them: the caller removes their files."""
        self._reopen_if_replaced()
        with self._database.writing(wait_seconds=_WAIT_SECONDS) as connection:
            return _remove_packs_over(connection, limit)

    def touch(self, packs: Iterable[str]) -> None:
        """Mark the packs as used now."""
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
        self._reopen_if_replaced()
        return {row["name"] for row in self._database.query("SELECT name FROM pack")}

    def pack_below(self, size: int) -> str | None:
        """The last used pack that is smaller than this."""
        self._reopen_if_replaced()
        found = self._database.query(
            "SELECT name FROM pack WHERE size < ? ORDER BY used_at DESC LIMIT 1", size
        )
        return found[0]["name"] if found else None

    def start_over(self) -> None:
        """Remove a damaged index. Its packs then count as abandoned."""
        self._database.close()
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                Path(f"{self._path}{suffix}").unlink()

    def _reopen_if_replaced(self) -> None:
        """Reconnect if the file was removed: open connections would still use the old one."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = None
        if inode != self._inode or inode is None:
            self._database.close()
            self._database.connection()
            self._inode = self._path.stat().st_ino


def _remove_packs_over(connection: sqlite3.Connection, limit: int) -> list[str]:
    names = _packs_over(connection, limit)
    connection.executemany("DELETE FROM pack WHERE name = ?", ((name,) for name in names))
    return names


def _packs_over(connection: sqlite3.Connection, limit: int) -> list[str]:
    packs = connection.execute("SELECT name, size FROM pack ORDER BY used_at DESC").fetchall()
    names, total = [], 0
    for pack in packs:
        total += pack["size"]
        if total > limit:
            names.append(pack["name"])
    return names
