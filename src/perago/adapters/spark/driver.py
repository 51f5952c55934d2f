"""A Spark driver of this process's own: ``local[…]``, or the driver of a cluster."""

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
from perago.adapters.spark.jvm import GatewayEnded, end, launch
from perago.adapters.spark.lakefs_files import adapt_writers
from perago.errors import RuntimeConfigError, SparkFailedError
from perago.model.progress import Computation
from perago.toolchain.spark_jars import spark_home

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from perago.adapters.spark.jvm import Prerequisites

REACH_SECONDS = 5.0
_ENDING_SECONDS = 60.0
_LAST_LINES = 15
_SAYS_NOTHING = ("Error: Could not create the Java", "Error: A fatal exception has occurred")
"""A JVM's last words about an option of its own; which one stands before them."""

_LATEST = 20
_LOOK_SECONDS = 0.05
_DEFAULT_DATABASE = "default"
_OWN_CATALOGUE = "InMemoryCatalog"


@dataclass(slots=True)
class Driver:
    """Implements :class:`perago.adapters.spark.engine.Spark`.

    ``configure`` makes the settings out of the user's own ones in spark-defaults.conf;
    ``environment`` brings Java and jars when they are needed; ``log`` is where Spark's own log
    goes, and ``scratch`` this driver's own directory.
    """

    configure: Callable[[Mapping[str, str]], dict[str, str]]
    environment: Prerequisites
    scratch: Path
    log: Path
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _base: Any = field(default=None, init=False)
    _session: Any = field(default=None, init=False)
    _pristine: Any = field(default=None, init=False)
    _hadoop: Mapping[str, str] = field(default_factory=dict, init=False, repr=False)  # has a key
    _gateway: Any = field(default=None, init=False)

    @property
    def sees_local_files(self) -> bool:
        return is_local(self._settings()["spark.master"])

    # --- the driver -------------------------------------------------------------------------------
    def load(self) -> None:
        spark_home()  # says what is wrong with it
        import pyspark.sql  # noqa: F401 - that it is loaded is all

    def fetch_prerequisites(self) -> None:
        self.environment.bring(self._settings())

    def start(self) -> None:
        with self._lock:
            if not self._is_up():
                self._base = self._started()

    def _is_up(self) -> bool:
        if self._base is None:
            return False
        try:
            return not self._base._jsc.sc().isStopped()  # noqa: SLF001 - no other way
        except Exception:  # noqa: BLE001 - py4j's, from a JVM that is gone
            return False

    def _started(self) -> Any:
        settings = self._settings()
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        assert_reachable(settings["spark.master"])
        _assert_plain(self.scratch)
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        needed = self.environment.bring(settings)
        properties = self.scratch / "spark.properties"
        _write_privately(properties, as_properties(needed.settings))
        began = self.log.stat().st_size if self.log.exists() else 0
        try:
            self._drop_other_gateway()
            _stop_other_context()
            if SparkContext._gateway is None:  # noqa: SLF001 - as PySpark itself asks
                gateway = launch(spark_home(), properties, needed.java_home, self.log)
                SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm  # noqa: SLF001
                self._gateway = gateway
            context = SparkContext.getOrCreate()
        except Exception as error:
            raise RuntimeConfigError(
                f"Spark couldn't be started: {self._why(error, began)}",
                fix=f"correct the setting it names; all it said is in {self.log}",
            ) from error
        if is_local(settings["spark.master"]) and "PYSPARK_PYTHON" not in os.environ:
            context.pythonExec = sys.executable
        session: Any = SparkSession(context)
        hadoop = session._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark has no other way
        self._pristine = session._jvm.org.apache.hadoop.conf.Configuration(hadoop)  # noqa: SLF001
        # Checksums in files beside the data: a store has its own, and they would be published.
        local = session._jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop)  # noqa: SLF001
        local.setWriteChecksum(False)
        local.setVerifyChecksum(False)
        return session

    def _settings(self) -> dict[str, str]:
        return self.configure(spark_defaults(os.environ, spark_home()))

    def _drop_other_gateway(self) -> None:
        """Forget a JVM that is gone, and end one that was started with other settings than ours."""
        from pyspark import SparkContext

        gateway = SparkContext._gateway  # noqa: SLF001 - as in start
        if gateway is None or (gateway is self._gateway and gateway.proc.poll() is None):
            return
        _end_gateway()
        SparkContext._active_spark_context = None  # noqa: SLF001 - it was that JVM's

    def _why(self, error: Exception, began: int) -> str:
        """The line that matters: Spark's error if it got so far, else the last of its log."""
        if not isinstance(error, GatewayEnded):
            return short_message(error) or str(error)
        with suppress(OSError), self.log.open("rb") as log:
            log.seek(began)
            lines = log.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
            said = [line.strip() for line in lines if line.strip() and "\tat " not in line]
            told = [line for line in said if not line.startswith(_SAYS_NOTHING)] or said
            failures = [line for line in told if "rror" in line or "xception" in line]
            if found := failures[:1] or told[-1:]:
                return found[0]
        return "it ended without a word"

    # --- an attempt -------------------------------------------------------------------------------
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
        # Whoever asks Spark for "the" session is to get this one.
        SparkSession._instantiatedSession = session  # noqa: SLF001 - as its builder does
        SparkSession._activeSession = session  # noqa: SLF001
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
        session._jvm.SparkSession.setDefaultSession(session._jsparkSession)  # noqa: SLF001
        return session

    def _restore_hadoop(self, settings: Mapping[str, str]) -> None:
        """All sessions of a driver have these in common, so a body may have set some."""
        hadoop = self._base._jsc.hadoopConfiguration()  # noqa: SLF001 - as above
        hadoop.clear()
        hadoop.addResource(self._pristine)
        for key, value in settings.items():
            hadoop.set(key, value)

    def _clear_cache(self) -> None:
        self._base._jsparkSession.sharedState().cacheManager().clearCache()  # noqa: SLF001

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
            _stop_other_context()
            return
        for query in self._session.streams.active if self._session else ():
            query.stop()
        tracker = context.statusTracker()
        deadline = time.monotonic() + _ENDING_SECONDS
        while tracker.getActiveJobsIds() or self._has_commands():
            if time.monotonic() > deadline:
                raise SparkFailedError(
                    f"jobs of the task are still running {_ENDING_SECONDS:.0f} s after they were "
                    "cancelled",
                    fix="wait in the body for every thread it starts",
                )
            context.cancelAllJobs()
            time.sleep(_LOOK_SECONDS)

    def _has_commands(self) -> bool:
        """Whether a write still goes on beside its jobs: they are committed, or cleaned up after.

        Only a thread that outlives its body can be at that, so it is one of the latest.
        """
        if self._session is None:
            return False
        store = self._session._jsparkSession.sharedState().statusStore()  # noqa: SLF001
        running = self._session._jvm.org.apache.spark.sql.execution.SQLExecution  # noqa: SLF001
        before = max(store.executionsCount() - _LATEST, 0)
        latest = store.executionsList(before, _LATEST)
        return any(
            running.getQueryExecution(latest.apply(n).executionId()) is not None
            for n in range(latest.size())
        )

    def close_session(self) -> None:
        session, self._session = self._session, None
        if session is None or self._context is None:
            return
        with suppress(Exception):  # a driver that is gone has nothing left of it
            self.cancel_jobs()
            jvm, java = session._jvm, session._jsparkSession  # noqa: SLF001
            self._clear_cache()
            # The public catalog would list them by a query, which takes longer than all the rest.
            java.sessionState().catalog().globalTempViewManager().clear()
            self._forget_tables(java.sharedState().externalCatalog().unwrapped(), jvm)
            self._restore_hadoop({})
            session._jsc.sc().setLocalProperties(jvm.java.util.Properties())  # noqa: SLF001

    def _forget_tables(self, catalog: Any, jvm: Any) -> None:
        """Forget the tables and databases that a task has made in this driver's own catalogue.

        Names only: files outside of our own scratch directory may be anybody's. A catalogue that
        outlives the driver, such as Hive's, isn't ours to clean.
        """
        if catalog.getClass().getSimpleName() != _OWN_CATALOGUE:
            return
        names = catalog.listDatabases()
        if names.size() == 1 and catalog.listTables(_DEFAULT_DATABASE).isEmpty():
            return
        default = catalog.getDatabase(_DEFAULT_DATABASE)
        nowhere = jvm.java.net.URI((self.scratch / "nowhere").as_uri())
        for name in (names.apply(n) for n in range(names.size())):
            database = catalog.getDatabase(name)
            described = (database.description(), nowhere, database.properties())
            catalog.alterDatabase(database.copy(name, *described))  # dropping removes its directory
            catalog.dropDatabase(name, True, True)  # noqa: FBT003 - Java's: if it is there, with all
        shutil.rmtree(self.scratch / "warehouse", ignore_errors=True)
        catalog.createDatabase(default, True)  # noqa: FBT003 - Java's: unless it is there

    def stop(self) -> None:
        with suppress(Exception):
            if self._base is not None:
                self._base.stop()
        _end_gateway()
        self._base = None
        shutil.rmtree(self.scratch, ignore_errors=True)

    @property
    def _context(self) -> Any:
        base = self._base
        if base is None or base.sparkContext._jsc is None:  # noqa: SLF001 - a body stopped it
            return None
        return base.sparkContext


def _end_gateway() -> None:
    """End the JVM that PySpark has in this process, if any, and have it forgotten. Never raises."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # noqa: SLF001 - as in start
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        with suppress(Exception):
            gateway.shutdown()
            end(gateway.proc)


def _stop_other_context() -> None:
    """End what a body has put in the place of a driver it stopped, with all it computes.

    Left alone it would be the next one's to work with, by settings that are nobody's.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context  # noqa: SLF001 - no other way
    if context is not None:
        with suppress(Exception):  # of a JVM that is gone
            context.stop()


def _write_privately(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with open(
        path, "w", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)
    ) as file:
        file.write(text)


def _assert_plain(path: Path) -> None:
    """Raises RuntimeConfigError if a name on the way means something else to Spark."""
    if found := re.search(r'[,*?{}\[\]\\"]', str(path)):
        raise RuntimeConfigError(
            f"Spark can't work below {path}: it takes {found[0]!r} for something else than a part "
            "of a name",
            fix="point PERAGO_WORKSPACE_ROOT at a directory without it",
        )


def assert_reachable(master: str) -> None:
    """Raises RuntimeConfigError at once where Spark would try for a minute."""
    if not master.startswith("spark://"):
        return
    refusals = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
        except (OSError, ValueError) as error:
            refusals.append(f"{address}: {error}")
        else:
            return
    raise RuntimeConfigError(
        f"SPARK_MASTER={master} can't be reached ({'; '.join(refusals)})",
        fix="start the master, correct the address, or unset SPARK_MASTER to compute here",
    )
