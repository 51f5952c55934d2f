"""A Spark driver in this process: ``local[…]``, or the driver of a cluster.

One driver serves attempt after attempt. Each attempt gets its own session, and everything it sets,
caches or registers is removed before the next one. PySpark has no public way to much of this, so
private members of PySpark and the JVM's own objects are used in many places (SLF001).
"""

# ruff: noqa: SLF001

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perago.adapters.spark.configuration import as_properties, is_local, spark_defaults
from perago.adapters.spark.error_text import short_message, silence_query_logger
from perago.adapters.spark.jvm import JVMEndedError, end, launch
from perago.adapters.spark.lakefs_files import adapt_writers
from perago.errors import RuntimeConfigError, SparkFailedError
from perago.model.progress import Computation
from perago.toolchain.spark_jars import spark_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from perago.adapters.spark.jvm import Prerequisites

CONNECT_SECONDS = 5.0
_CANCEL_SECONDS = 60.0
_POLL_SECONDS = 0.05
_LOG_LINES = 15
_UNSPECIFIC = ("Error: Could not create the Java", "Error: A fatal exception has occurred")
"""Lines in which a JVM refuses an option; the line before them names the option."""
_LATEST_EXECUTIONS = 20
_DEFAULT_DATABASE = "default"
_IN_MEMORY_CATALOG = "InMemoryCatalog"


@dataclass(slots=True)
class Driver:
    """Implements :class:`perago.adapters.spark.engine.Spark`.

    ``configure`` makes the driver's settings out of the user's spark-defaults.conf;
    ``prerequisites`` fetches Java and jars when they are needed; ``scratch`` is this driver's own
    directory, and ``log`` the file for Spark's log.
    """

    configure: Callable[[Mapping[str, str]], dict[str, str]]
    prerequisites: Prerequisites
    scratch: Path
    log: Path
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _base: Any = field(default=None, init=False)
    """The session that those of the attempts are derived from; None if the driver isn't started."""
    _session: Any = field(default=None, init=False)
    """The session of the current attempt."""
    _pristine_hadoop: Any = field(default=None, init=False)
    _hadoop: Mapping[str, str] = field(default_factory=dict, init=False, repr=False)  # has a key
    _gateway: Any = field(default=None, init=False)

    @property
    def sees_local_files(self) -> bool:
        return is_local(self._settings()["spark.master"])

    def load(self) -> None:
        spark_home()  # raises if this isn't the right PySpark
        import pyspark.sql  # noqa: F401 - only to have it loaded

    def fetch_prerequisites(self) -> None:
        self.prerequisites.ensure(self._settings())

    def start(self) -> None:
        with self._lock:
            if not self._is_running():
                self._base = self._start()

    def _settings(self) -> dict[str, str]:
        return self.configure(spark_defaults(os.environ, spark_home()))

    def _is_running(self) -> bool:
        if self._base is None:
            return False
        try:
            return not self._base._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - py4j's, from a JVM that has ended
            return False

    def _start(self) -> Any:
        from pyspark.sql import SparkSession

        settings = self._settings()
        assert_reachable(settings["spark.master"])
        _assert_plain(self.scratch)
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        java_home, completed = self.prerequisites.ensure(settings)
        properties = self.scratch / "spark.properties"
        _write_private(properties, as_properties(completed))
        log_offset = self.log.stat().st_size if self.log.exists() else 0
        try:
            context = self._start_context(properties, java_home)
        except Exception as error:
            raise RuntimeConfigError(
                f"Spark couldn't be started: {self._start_problem(error, log_offset)}",
                fix=f"correct the setting it names; the whole log is {self.log}",
            ) from error
        if is_local(settings["spark.master"]) and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        session: Any = SparkSession(context)
        hadoop = session._jsc.hadoopConfiguration()
        self._pristine_hadoop = session._jvm.org.apache.hadoop.conf.Configuration(hadoop)
        # Checksums in files beside the data would be published; a store has its own.
        local = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop)
        local.setWriteChecksum(False)
        local.setVerifyChecksum(False)
        return session

    def _start_context(self, properties: Path, java_home: Path) -> Any:
        """Start the context in a JVM with our settings, whatever PySpark has in this process."""
        from pyspark import SparkContext

        self._end_foreign_gateway()
        _stop_active_context()
        if SparkContext._gateway is None:
            self._gateway = launch(spark_home(), properties, java_home, self.log)
            SparkContext._gateway, SparkContext._jvm = self._gateway, self._gateway.jvm
        return SparkContext.getOrCreate()

    def _end_foreign_gateway(self) -> None:
        """Forget a JVM that has ended, and end one that was started with other settings."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        if gateway is None or (gateway is self._gateway and gateway.proc.poll() is None):
            return
        _end_gateway()
        SparkContext._active_spark_context = None  # it was in that JVM

    def _start_problem(self, error: Exception, log_offset: int) -> str:
        """Return the line that matters: Spark's error, or the last of the log if the JVM ended."""
        if not isinstance(error, JVMEndedError):
            return short_message(error) or str(error)
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(log_offset)
            lines = log.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
            lines = [line.strip() for line in lines if line.strip() and "\tat " not in line]
            specific = [line for line in lines if not line.startswith(_UNSPECIFIC)] or lines
            errors = [line for line in specific if "rror" in line or "xception" in line]
            if found := errors[:1] or specific[-1:]:
                return found[0]
        return "the JVM ended and logged nothing"

    def open_session(self, name: str, hadoop: Mapping[str, str]) -> SparkSession:
        from pyspark.sql import DataFrameWriter

        self.start()
        silence_query_logger()
        adapt_writers(DataFrameWriter)
        self._hadoop = hadoop
        self._session = self._new_session()
        self._session.sparkContext.setJobGroup(name, name, interruptOnCancel=True)
        return self._session  # type: ignore[no-any-return]

    def fresh_session(self) -> SparkSession:
        self.start()  # a body may have stopped it
        self._clear_cache()
        self._session = self._new_session()
        return self._session  # type: ignore[no-any-return]

    def _new_session(self) -> Any:
        from pyspark.sql import SparkSession

        session = self._base.newSession()
        self._restore_hadoop(self._hadoop)
        # Code that asks Spark for "the" session gets this one.
        SparkSession._instantiatedSession = session
        SparkSession._activeSession = session
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
        session._jvm.SparkSession.setDefaultSession(session._jsparkSession)
        return session

    def _restore_hadoop(self, settings: Mapping[str, str]) -> None:
        """Set Hadoop's settings anew: sessions share them, so a body may have changed some."""
        hadoop = self._base._jsc.hadoopConfiguration()
        hadoop.clear()
        hadoop.addResource(self._pristine_hadoop)
        for key, value in settings.items():
            hadoop.set(key, value)

    def _clear_cache(self) -> None:
        self._base._jsparkSession.sharedState().cacheManager().clearCache()

    def progress(self) -> Computation | None:
        context = self._context
        if context is None:
            return None
        tracker = context.statusTracker()
        jobs = sorted(tracker.getActiveJobsIds())
        if not jobs:
            return None
        stages = [
            stage
            for job in jobs
            if (info := tracker.getJobInfo(job))
            for number in info.stageIds
            if (stage := tracker.getStageInfo(number))
        ]
        doing = f"Spark job {jobs[-1]}" + (f", {context.uiWebUrl}" if context.uiWebUrl else "")
        done = sum(stage.numCompletedTasks for stage in stages)
        return Computation(doing, done, sum(stage.numTasks for stage in stages))

    def cancel_jobs(self) -> None:
        context = self._context
        if context is None:
            _stop_active_context()
            return
        for query in self._session.streams.active if self._session else ():
            query.stop()
        tracker = context.statusTracker()
        deadline = time.monotonic() + _CANCEL_SECONDS
        while tracker.getActiveJobsIds() or self._has_running_commands():
            if time.monotonic() > deadline:
                raise SparkFailedError(
                    f"jobs of the task still run {_CANCEL_SECONDS:.0f} s after they were cancelled",
                    fix="wait in the body for every thread it starts",
                )
            context.cancelAllJobs()
            time.sleep(_POLL_SECONDS)

    def _has_running_commands(self) -> bool:
        """Whether a write goes on without a job, because it commits its files or cleans up.

        Only a thread that outlives its body does that, so it is among the latest executions.
        """
        if self._session is None:
            return False
        store = self._session._jsparkSession.sharedState().statusStore()
        executions = self._session._jvm.org.apache.spark.sql.execution.SQLExecution
        offset = max(store.executionsCount() - _LATEST_EXECUTIONS, 0)
        latest = store.executionsList(offset, _LATEST_EXECUTIONS)
        return any(
            executions.getQueryExecution(latest.apply(n).executionId()) is not None
            for n in range(latest.size())
        )

    def close_session(self) -> None:
        session, self._session = self._session, None
        if session is None or self._context is None:
            return
        with suppress(Exception):  # a driver that has ended keeps nothing of the session
            self.cancel_jobs()
            jvm, java_session = session._jvm, session._jsparkSession
            self._clear_cache()
            # The public catalog lists views by a query, which takes longer than all the rest.
            java_session.sessionState().catalog().globalTempViewManager().clear()
            self._drop_tables(java_session.sharedState().externalCatalog().unwrapped(), jvm)
            self._restore_hadoop({})
            session._jsc.sc().setLocalProperties(jvm.java.util.Properties())

    def _drop_tables(self, catalog: Any, jvm: Any) -> None:
        """Drop the tables and databases that a task has made in this driver's own catalog.

        Only names are dropped: files outside of our scratch directory may belong to others. A
        catalog that outlives the driver, such as Hive's, isn't ours to clean.
        """
        if catalog.getClass().getSimpleName() != _IN_MEMORY_CATALOG:
            return
        names = catalog.listDatabases()
        if names.size() == 1 and catalog.listTables(_DEFAULT_DATABASE).isEmpty():
            return
        default = catalog.getDatabase(_DEFAULT_DATABASE)
        nowhere = jvm.java.net.URI((self.scratch / "nowhere").as_uri())
        for name in (names.apply(n) for n in range(names.size())):
            database = catalog.getDatabase(name)
            # Dropping a database removes its directory, so it gets one that doesn't exist.
            described = (database.description(), nowhere, database.properties())
            catalog.alterDatabase(database.copy(name, *described))
            catalog.dropDatabase(name, True, True)  # noqa: FBT003 - Java's: if it exists, cascading
        shutil.rmtree(self.scratch / "warehouse", ignore_errors=True)
        catalog.createDatabase(default, True)  # noqa: FBT003 - Java's: unless it exists

    def stop(self) -> None:
        with suppress(Exception):
            if self._base is not None:
                self._base.stop()
        _end_gateway()
        self._base = None
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def _context(self) -> Any:
        """The Spark context; None before the start, and after a body has stopped it."""
        base = self._base
        if base is None or base.sparkContext._jsc is None:
            return None
        return base.sparkContext


def assert_reachable(master: str) -> None:
    """Raise RuntimeConfigError at once if no master answers: Spark would try for a minute."""
    if not master.startswith("spark://"):
        return
    refusals = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            refusals.append(f"{address}: {error}")
        else:
            return
    raise RuntimeConfigError(
        f"SPARK_MASTER={master} can't be reached ({'; '.join(refusals)})",
        fix="start the master, correct the address, or unset SPARK_MASTER to compute here",
    )


def _assert_plain(path: Path) -> None:
    """Raise RuntimeConfigError if the path has a character with a meaning to Spark."""
    if found := re.search(r'[,*?{}\[\]\\"]', str(path)):
        raise RuntimeConfigError(
            f"Spark can't work below {path}: {found[0]!r} has a special meaning in Spark's paths",
            fix="point PERAGO_WORKSPACE_ROOT at a directory without it",
        )


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(
        path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)
    ) as file:
        file.write(text)


def _end_gateway() -> None:
    """End the JVM that PySpark has in this process, if any, and make PySpark forget it."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
            end(gateway.proc)


def _stop_active_context() -> None:
    """Stop a context that a body has started in place of ours, with all it computes.

    Otherwise the next attempt would use it, with settings that are not ours.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        with suppress(Exception):  # its JVM may have ended
            context.stop()
