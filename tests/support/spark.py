"""Spark tasks in this process, on either kind of store, with one driver for all of them."""

import contextlib
import io
import os
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
from pydantic import BaseModel
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from perago import RetryPolicy, SparkWorkspace, TaskControls, WorkspaceSpec, task
from perago.settings import Settings
from perago.testing import Bench, RecordingJournal
from perago.wiring import Engines
from support.lakefs import LakeFSBench

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "768m",
    "spark.sql.parquet.compression.codec": "uncompressed",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
"""Keeps Spark quick on tiny data."""

ON_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}
"""For the driver of a cluster that is all here."""


@contextlib.contextmanager
def bare_session(scratch, **settings):
    """Spark by itself, without anything of Perago's."""
    builder = SparkSession.builder.master("local[2]")
    plain = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    for name, value in (plain | settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


class Nothing(BaseModel):
    pass


class Answer(BaseModel):
    value: Any = None


def numbers(ws, *wanted):
    """A frame of one column, n."""
    return ws.spark.range(1).select(sf.explode(sf.lit(list(wanted))).alias("n"))


def write(frame, uri, mode="error", **options):
    """As one Parquet file."""
    frame.coalesce(1).write.mode(mode).options(**options).parquet(uri)


def values(spark, uri):
    """What stands in the first column of a Parquet table."""
    return sorted(row[0] for row in spark.read.parquet(uri).collect())


def with_table(place, *wanted, path="t"):
    """Have an earlier task write a table of numbers."""
    place.answer(lambda ws: write(numbers(ws, *wanted), ws.output(path)))


def spark_task(body, *, retries=0, **spec):
    """A task around a body that takes the workspace alone; what it returns is in the result."""

    @task(
        name=f"spark.{body.__name__}",
        owner_email="d@example.com",
        workspace=WorkspaceSpec(**spec),
        controls=TaskControls(retry=RetryPolicy(count=retries, delay_seconds=0)),
    )
    def work(ws: SparkWorkspace, params: Nothing) -> Answer:
        del params
        return Answer(value=body(ws))

    return work


def settings_for(home, server=None, *, conf=None, **given):
    """Settings of a Spark here, for lakeFS where a server is given, else for the embedded store."""
    on_lakefs = {"store": "lakefs", **server.settings} if server else {"store": "embedded"}
    given = {"spark_master": "local[2]", **given}
    return Settings(
        _env_file=None, home=home, spark_conf=SMALL | (conf or {}), **on_lakefs, **given
    )


@contextlib.contextmanager
def engines_for(settings):
    """The engines by these settings; their Spark is started when it is needed, and ended.

    There is one in a process: what another test left running is ended first.
    """
    if (running := SparkSession.getActiveSession()) is not None:
        running.stop()
    engines = Engines(settings)
    try:
        yield engines
    finally:
        engines["spark"].spark.stop()
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)  # PySpark's, for all of the process


class HadoopFiles:
    """Single files as Spark itself reaches them, for bodies that do what no writer does."""

    def __init__(self, spark):
        self._configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001 - no public way
        self._path = spark._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001 - no public way

    def write(self, uri, text="?"):
        """In place, if there is one of that name."""
        files, path = self._at(uri)
        stream = files.create(path, *[True])
        stream.write(bytearray(text.encode()))
        stream.close()

    def make_folder(self, uri):
        files, path = self._at(uri)
        files.mkdirs(path)

    def remove(self, uri):
        files, path = self._at(uri)
        files.delete(path, *[True])

    def set(self, key, value):
        self._configuration.set(key, value)

    def get(self, key):
        return self._configuration.get(key)

    def _at(self, uri):
        path = self._path(uri)
        return path.getFileSystem(self._configuration), path


class SparkRig:
    """A new repository in a store, and attempts on it, run right here."""

    def __init__(self, directory, engines, server=None):
        self.is_lakefs = server is not None
        self.bench = (
            LakeFSBench(directory, server, fenced=True) if self.is_lakefs else Bench(directory)
        )
        self.engines = engines
        self.journal = RecordingJournal()

    def close(self):
        self.bench.close()

    # --- attempts ---------------------------------------------------------------------------------
    def run(self, body, **spec):
        """One attempt at a task with this body, from the branch's head; how it ended."""
        work = spark_task(body, **spec)
        self.bench.start(work)
        return self.attempt(work)

    def attempt(self, work, **runtime):
        self.journal = RecordingJournal()
        return self.bench.attempt(
            work, replace(self.bench.runtime(journal=self.journal, **runtime), engines=self.engines)
        )

    def answer(self, body, **spec):
        """What a body returned whose task completed."""
        outcome = self.run(body, **spec)
        assert outcome.report.completed, f"{outcome.report.reason}\n{self.trace}"
        return outcome.report.output["result"]["value"]

    def failure(self, body, **spec):
        """Why a task failed; it has left the branch as it was, and nothing of its own."""
        before = self.bench.head
        outcome = self.run(body, **spec)
        assert not outcome.report.completed, outcome
        assert self.bench.head == before
        self.assert_nothing_left()
        return outcome.report.reason

    @property
    def trace(self):
        return "\n".join(self.journal.tracebacks)

    # --- what has come of it ----------------------------------------------------------------------
    @property
    def staging_branches(self):
        return self.bench.staging_branches()

    def files(self, below=""):
        """Every object on the branch, by its key."""
        return {key: data for key, data in self.bench.read().items() if key.startswith(below)}

    def objects(self, below=""):
        return sorted(self.files(below))

    def rows(self, table):
        """A Parquet table's rows, read by another program than Spark; partitions as columns."""
        found = []
        for key, data in self.files(f"{table}/").items():
            folders = key.removeprefix(f"{table}/").split("/")[:-1]
            partition = dict(folder.split("=") for folder in folders)
            rows = pq.read_table(io.BytesIO(data)).to_pylist()
            found += [row | partition for row in rows]
        return sorted(found, key=lambda row: sorted((name, str(row[name])) for name in row))

    def assert_nothing_left(self):
        """No private branch, no private directory, nothing uncommitted."""
        assert self.staging_branches == []
        attempts = self.bench.attempts
        assert not attempts.exists() or list(attempts.iterdir()) == []
        assert self.bench.store.uncommitted(self.bench.repository, self.bench.branch) == []
