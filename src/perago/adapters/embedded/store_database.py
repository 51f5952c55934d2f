"""Connections to ``store.db``, one per thread and process, and its transactions."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.adapters.embedded.disk import database_failure, sync_directory, write_failure
from perago.adapters.embedded.schema import ensure_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY_SECONDS = 60.0

# A connection that came through a fork is neither used nor closed in the child: closing it would
# act on the parent's files. It is only kept from being finalised.
_left_to_the_parent: list[sqlite3.Connection] = []


class StoreDatabase:
    """The SQLite file below a store's root.

    Any thread of any process may use it. Every error of SQLite's leaves it as one of ours.
    """

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.path = str(root / "store.db")
        self._durable = durable
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._connections: dict[threading.Thread, sqlite3.Connection] = {}
        self._create(root)

    def _create(self, root: Path) -> None:
        try:
            descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise write_failure(root, error) from error
        try:
            # Two processes switching one new file to WAL at once would fail with "locked".
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with self._told():
                connection = self.connection()
                connection.execute("PRAGMA journal_mode = WAL")
                created = ensure_schema(connection, str(root))
            if created and self._durable:
                sync_directory(str(root))
                sync_directory(str(root.parent))
        except BaseException:
            self.close()
            raise
        finally:
            os.close(descriptor)

    def connection(self) -> sqlite3.Connection:
        """This thread's own connection, in autocommit mode."""
        if self._pid != os.getpid():
            self._start_over_after_fork()
        thread = threading.current_thread()
        connection = self._connections.get(thread)
        return self._connect(thread) if connection is None else connection

    def _start_over_after_fork(self) -> None:
        _left_to_the_parent.extend(self._connections.values())
        self._connections = {}
        self._guard = threading.Lock()  # a thread that doesn't exist here may have held the old one
        self._pid = os.getpid()

    def _connect(self, thread: threading.Thread) -> sqlite3.Connection:
        with self._guard, self._told():
            for ended in [t for t in self._connections if not t.is_alive()]:
                self._connections.pop(ended).close()
            connection = sqlite3.connect(
                self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            self._connections[thread] = connection
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'OFF'}")
            connection.execute("PRAGMA foreign_keys = ON")
            return connection

    def query(self, sql: str, *values: object) -> list[Any]:
        """All rows of one SELECT, in this thread's transaction if it is in one."""
        with self._told():
            return self.connection().execute(sql, values).fetchall()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One unchanging view of the database for as long as the block lasts."""
        connection = self.connection()
        with self._told():
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                _roll_back(connection)

    @contextmanager
    def writing(self, *, wait_seconds: float | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction that nobody else's write can come between; all of it or nothing.

        Raises :class:`StoreUnavailableError` if its turn didn't come within ``wait_seconds``.
        """
        connection = self.connection()
        with self._told():
            self._begin(connection, _BUSY_SECONDS if wait_seconds is None else wait_seconds)
            try:
                yield connection
            except BaseException:
                _roll_back(connection)
                raise
        try:
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            _roll_back(connection)
            raise database_failure(self.path, error, committing=True) from error

    def _begin(self, connection: sqlite3.Connection, wait_seconds: float) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(wait_seconds * 1000)}")
        try:
            connection.execute("BEGIN IMMEDIATE")
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise database_failure(self.path, error) from error

    def close(self) -> None:
        """Close this process's connections. The next use opens new ones."""
        with self._guard:
            if self._pid == os.getpid():
                for connection in self._connections.values():
                    connection.close()
                self._connections = {}


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # SQLite ends some failed transactions by itself
        connection.execute("ROLLBACK")
