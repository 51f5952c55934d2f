"""A Spark Connect server: the driver, its jars and its settings for lakeFS are on that server."""

from __future__ import annotations

import socket
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from perago.adapters.spark.driver import CONNECT_SECONDS
from perago.adapters.spark.error_text import short_message, silence_query_logger
from perago.adapters.spark.lakefs_files import adapt_writers
from perago.errors import RuntimeConfigError
from perago.model.progress import Computation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_PORT = 15002
_FIX = "start the Spark Connect server, correct the address, or unset SPARK_REMOTE"


@dataclass(slots=True)
class ConnectServer:
    """Implements :class:`perago.adapters.spark.engine.Spark`. ``url`` may hold a token."""

    url: str = field(repr=False)
    _sessions: list[Any] = field(default_factory=list, init=False)
    _name: str = field(default="", init=False)
    _progress: Computation | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Its address without parameters, which may hold a secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port or _PORT}"

    @property
    def sees_local_files(self) -> bool:
        return False

    def load(self) -> None:
        try:
            import pyspark.sql.connect.session  # noqa: F401 - whether it is there
        except ImportError as error:
            raise RuntimeConfigError(
                f"SPARK_REMOTE is set, and Spark Connect isn't installed: {error}",
                fix="pip install 'perago-runtime[connect]', or unset SPARK_REMOTE",
            ) from error

    def fetch_prerequisites(self) -> None:
        self.load()

    def start(self) -> None:
        """Check that the server can be reached. PySpark itself would try for ten minutes."""
        parts = urlsplit(self.url)
        try:
            server = (parts.hostname or "", parts.port or _PORT)
            socket.create_connection(server, CONNECT_SECONDS).close()
        except OSError as error:
            raise RuntimeConfigError(
                f"SPARK_REMOTE={self.address} can't be reached: {error}", fix=_FIX
            ) from error
        self.load()

    def open_session(self, name: str, hadoop: Mapping[str, str]) -> SparkSession:
        del hadoop  # the server has its own
        self.start()
        from pyspark.sql.connect.readwriter import DataFrameWriter

        silence_query_logger()
        adapt_writers(DataFrameWriter)
        self._name = name
        return self.fresh_session()

    def fresh_session(self) -> SparkSession:
        """Open another session. Sessions share the server's cache; checks read other paths."""
        from pyspark.sql import SparkSession

        try:
            session: Any = SparkSession.builder.remote(self.url).appName(self._name).create()
            session.version  # noqa: B018 - asks the server
        except Exception as error:
            raise RuntimeConfigError(
                f"SPARK_REMOTE={self.address} can't be used: {short_message(error) or error}",
                fix=_FIX,
            ) from error
        session.registerProgressHandler(self._on_progress)
        session.addTag(self._name)
        self._sessions.append(session)
        return session  # type: ignore[no-any-return]

    def _on_progress(
        self, stages: Any, inflight_tasks: int, operation_id: str | None, *, done: bool
    ) -> None:
        del inflight_tasks, operation_id
        if done or not stages:
            self._progress = None
            return
        self._progress = Computation(
            f"Spark at {self.address}",
            sum(stage.num_completed_tasks for stage in stages),
            sum(stage.num_tasks for stage in stages),
        )

    def progress(self) -> Computation | None:
        return self._progress

    def cancel_jobs(self) -> None:
        for session in self._sessions:
            with suppress(Exception):
                session.interruptAll()

    def close_session(self) -> None:
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            with suppress(Exception):
                session.interruptAll()
                session.stop()
            _disarm_finalizer(session)

    def stop(self) -> None:
        self.close_session()


def _disarm_finalizer(session: Any) -> None:
    """Keep a stopped session from closing its channel again when it is garbage-collected.

    PySpark would wait there for threads that all sessions share, at any moment the garbage
    collector picks. If another session passes work to them at that moment, both wait forever.
    """
    with suppress(Exception):
        session.client.close = lambda: None
