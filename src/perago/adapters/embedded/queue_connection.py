"""The queue's SQLite file: a connection for each thread of each process, and transactions on it."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue_schema import check_format, ensure_database
from perago.errors import (
    OrchestratorError,
    OrchestratorUnavailableError,
    StoreFormatError,
    StoreFullError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BUSY_SECONDS = 30.0
_MAKE_ROOM = "free some disk space and check the directory's permissions"

# Connections that came along through a fork. Using or even closing one would disturb the parent's
# locks and write-ahead log, so they are kept from the garbage collector instead.
_inherited: list[sqlite3.Connection] = []


class QueueDatabase:
    """Opens the file on first use, in whatever thread or process that happens."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._path = path
        self._durable = durable
        self._local = threading.local()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is alone with the database: everything in it happens, or nothing."""
        with _errors_named(self._path):
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One consistent view of the database."""
        with _errors_named(self._path):
            connection = self._connection()
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.rollback()

    def close(self) -> None:
        """Close this thread's connection; the next use opens another one."""
        self._local.__dict__.clear()

    def _connection(self) -> sqlite3.Connection:
        opened: _Opened | None = getattr(self._local, "opened", None)
        if opened is None or opened.process != os.getpid():
            opened = _Opened(self._open())
            self._local.opened = opened
        return opened.connection

    def _open(self) -> sqlite3.Connection:
        try:
            ensure_database(self._path)
        except OSError as error:
            raise StoreFullError(
                f"the queue at {self._path} can't be created: {error}", fix=_MAKE_ROOM
            ) from error
        connection = sqlite3.connect(
            self._path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            check_format(connection, self._path)
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        connection.row_factory = sqlite3.Row
        return connection


class _Opened:
    """A connection and the process that may use it; closed when its thread ends."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.process = os.getpid()

    def __del__(self) -> None:
        if self.process == os.getpid():
            self.connection.close()
        else:
            _inherited.append(self.connection)


@contextmanager
def _errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise OrchestratorUnavailableError(
                f"the queue at {path} stayed locked for {_BUSY_SECONDS:.0f} seconds",
                fix="look for a stopped process that holds it, then try again",
            ) from error
        if name.startswith(
            ("SQLITE_FULL", "SQLITE_READONLY", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_PERM")
        ):
            raise StoreFullError(
                f"the queue at {path} can't be read or written: {error}",
                fix=_MAKE_ROOM,
            ) from error
        if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            raise StoreFormatError(
                f"{path} is not a readable SQLite database: {error}",
                fix="restore it from a backup, or move it away to start with an empty queue",
            ) from error
        raise OrchestratorError(f"the queue at {path} failed: {error}") from error
