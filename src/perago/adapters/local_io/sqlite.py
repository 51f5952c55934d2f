"""A SQLite file that any number of threads and processes use at once.

The owner of the file says in a :class:`Schema` what is in it and how its errors are named.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
import weakref
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from perago.adapters.local_io.file_copy import make_directory, sync_directory, write_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.errors import PeragoError


BUSY_SECONDS = 60.0
"""How long a statement waits for the file, unless the caller sets another time."""


class ErrorKind(Enum):
    """What kind of error SQLite raised."""

    BUSY = auto()
    DISK = auto()
    NO_ROOM_OR_PERMISSION = auto()
    DAMAGE = auto()
    OTHER = auto()


_KINDS = {
    sqlite3.SQLITE_BUSY: ErrorKind.BUSY,
    sqlite3.SQLITE_LOCKED: ErrorKind.BUSY,
    sqlite3.SQLITE_IOERR: ErrorKind.DISK,
    sqlite3.SQLITE_FULL: ErrorKind.NO_ROOM_OR_PERMISSION,
    sqlite3.SQLITE_READONLY: ErrorKind.NO_ROOM_OR_PERMISSION,
    sqlite3.SQLITE_CANTOPEN: ErrorKind.NO_ROOM_OR_PERMISSION,
    sqlite3.SQLITE_PERM: ErrorKind.NO_ROOM_OR_PERMISSION,
    sqlite3.SQLITE_CORRUPT: ErrorKind.DAMAGE,
    sqlite3.SQLITE_NOTADB: ErrorKind.DAMAGE,
}


def kind_of_error(error: sqlite3.Error) -> ErrorKind:
    """The kind of a SQLite error, whatever its extended code."""
    return _KINDS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, ErrorKind.OTHER)


class ErrorTranslation(Protocol):
    """Makes one of our errors from SQLite's; ``committing`` if it was the COMMIT that failed."""

    def __call__(
        self, path: str, error: sqlite3.Error, *, committing: bool = False
    ) -> PeragoError: ...


@dataclass(frozen=True, slots=True)
class Schema:
    """What the owner of a database defines.

    ``script`` creates the tables of a new one. ``check`` raises StoreFormatError for a database
    that is not the owner's, or not of this version. ``error`` translates SQLite's errors.
    """

    script: str
    check: Callable[[sqlite3.Connection, str], None]
    error: ErrorTranslation


class Database:
    """Opens the file on its first use in each thread and process; creates it if it is missing.

    Every method raises SQLite's errors as ``schema.error`` translates them. Without ``durable``
    the file survives a killed process, but not a power cut.
    """

    def __init__(self, path: Path, schema: Schema, *, durable: bool) -> None:
        self.path = str(path)
        self._schema = schema
        self._durable = durable
        self._guard = threading.Lock()
        self._connections: dict[threading.Thread, sqlite3.Connection] = {}
        _databases.add(self)

    def connection(self) -> sqlite3.Connection:
        """This thread's own connection, in autocommit mode."""
        thread = threading.current_thread()
        connection = self._connections.get(thread)
        return self._connect(thread) if connection is None else connection

    def query(self, sql: str, *values: object) -> list[Any]:
        """All rows of one SELECT, in this thread's transaction if it is in one."""
        connection = self.connection()
        with self._translated_errors():
            return connection.execute(sql, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One unchanging view of the database for as long as the block lasts."""
        connection = self.connection()
        with self._translated_errors():
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self, *, wait_seconds: float | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction without any other write in between; all of it is applied, or nothing.

        It waits for other writers for ``wait_seconds``, by default :data:`BUSY_SECONDS`.
        """
        connection = self.connection()
        with self._translated_errors():
            _begin(connection, wait_seconds)
            try:
                yield connection
            except BaseException:
                _roll_back(connection)
                raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            raise self._schema.error(self.path, error, committing=True) from error

    def close(self) -> None:
        """Close this process's connections. The next use opens new ones."""
        with self._guard:
            for connection in self._connections.values():
                connection.close()
            self._connections = {}

    def __del__(self) -> None:
        """Close what the owner forgot to close, so that Python gives no ResourceWarning."""
        for connection in self._connections.values():
            connection.close()

    def leave_to_parent(self) -> None:
        """In a forked child: start over; neither use nor close the connections of the parent."""
        _left_to_parents.extend(self._connections.values())
        self._connections = {}
        self._guard = threading.Lock()  # a thread that doesn't exist here may have held the old one

    def _connect(self, thread: threading.Thread) -> sqlite3.Connection:
        with self._guard, self._translated_errors():
            for ended in [t for t in self._connections if not t.is_alive()]:
                self._connections.pop(ended).close()
            if not Path(self.path).exists():
                self._create(Path(self.path))
            connection = _open(self.path, durable=self._durable)
            try:
                self._schema.check(connection, self.path)
            except BaseException:
                connection.close()
                raise
            self._connections[thread] = connection
            return connection

    def _create(self, path: Path) -> None:
        """Build the file under another name and link it to its own.

        So no process finds a file without its tables, even after a crash. If several processes
        create it at once, one wins.
        """
        try:
            make_directory(path.parent, durable=self._durable)
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as scratch:
                built = Path(scratch) / path.name
                self._build(built)
                with suppress(FileExistsError):
                    path.hardlink_to(built)
            if self._durable:
                sync_directory(path.parent)
        except OSError as error:
            raise write_error(path, error) from error

    def _build(self, path: Path) -> None:
        connection = _open(str(path), durable=self._durable)
        try:
            # The journal mode is kept in the file; set here, no later connection races to switch.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN;{self._schema.script}COMMIT;")
        finally:
            connection.close()

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._schema.error(self.path, error) from error


def _open(path: str, *, durable: bool) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    connection.row_factory = sqlite3.Row
    try:
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _begin(connection: sqlite3.Connection, wait_seconds: float | None) -> None:
    if wait_seconds is None:
        connection.execute("BEGIN IMMEDIATE")
        return
    connection.execute(f"PRAGMA busy_timeout = {int(wait_seconds * 1000)}")
    try:
        connection.execute("BEGIN IMMEDIATE")
    finally:
        connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # SQLite ends some failed transactions by itself
        connection.execute("ROLLBACK")


# --- fork ----------------------------------------------------------------------------------------

_databases: weakref.WeakSet[Database] = weakref.WeakSet()
# Using or closing these in the child would act on the parent's locks and write-ahead log. They are
# only kept from being finalised.
_left_to_parents: list[sqlite3.Connection] = []


def _start_over_in_child() -> None:
    for database in _databases:
        database.leave_to_parent()


os.register_at_fork(after_in_child=_start_over_in_child)
