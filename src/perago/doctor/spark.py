"""Checks of Spark: on this machine, on a cluster, or on a Spark Connect server."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.spark.configuration import COMMITTER, chosen_master, s3a_uri, spark_defaults
from perago.adapters.spark.connect import ConnectServer
from perago.adapters.spark.driver import assert_reachable
from perago.adapters.spark.error_text import short_message
from perago.doctor.finding import Finding
from perago.doctor.machine import has_store
from perago.errors import PeragoError, RuntimeConfigError
from perago.toolchain.java import installed_spark_java
from perago.toolchain.spark_jars import VERSION, cached_s3_jars, is_installed, spark_home
from perago.wiring import open_spark, open_spark_engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

    from perago.adapters.spark.engine import SparkEngine
    from perago.settings import Settings


_BY_VARIABLE = "SPARK_MASTER"
_MASTER_KEY = "spark.master"
_FOR_HADOOP = "spark.hadoop."
_RENAMING = "writes may be renamed, slowly and not in one step"
_RISKS = {
    "spark.hadoop.fs.s3a.committer.abort.pending.uploads": (
        "a job would abort the uploads of others below its path"
    ),
}
_NOTHING = "perago-doctor-looks-for-nothing"
_NOT_FOUND = "PATH_NOT_FOUND"


def diagnose_spark(settings: Settings, repository: str | None) -> Iterator[Finding]:
    """Check what a Spark task needs, without starting one.

    Without PySpark there are no Spark tasks here. With ``repository``, check that a Spark Connect
    server can read it.
    """
    if not is_installed():
        yield Finding("spark", "ok", "PySpark isn't installed, so no Spark tasks run here")
        return
    if not has_store(settings):  # the lakeFS checks report that
        return
    try:
        spark = open_spark(settings)
        engine = open_spark_engine(settings, spark)
        if isinstance(spark, ConnectServer):
            engine.assert_files_reachable()
            yield from _connect(spark, settings, repository)
        else:
            yield from _driver(settings, engine)
    except PeragoError as error:
        yield Finding.of_error("spark", error)


def _driver(settings: Settings, engine: SparkEngine) -> Iterator[Finding]:
    master, source = _master(settings)
    try:
        engine.assert_files_reachable()
        assert_reachable(master)
    except RuntimeConfigError as error:
        if source == _BY_VARIABLE:
            raise
        yield Finding(
            "spark",
            "fail",
            f"{error.message}; {master} is set by {source}",
            f"change {source}, or set {_BY_VARIABLE}, which wins over it",
        )
        return
    yield Finding("spark", "ok", f"PySpark {VERSION}, {master} ({source})")
    java = installed_spark_java()
    if java is None:
        yield Finding("spark java", "ok", "no suitable one: fetched when the first task needs it")
    else:
        yield Finding("spark java", "ok", f"{java.java.program}, {java.java.feature}")
    if settings.store == "lakefs":
        jars = cached_s3_jars()
        found = f"{len(jars)} in the cache" if jars else "fetched when the first task needs them"
        yield Finding("spark jars", "ok", found)


def _master(settings: Settings) -> tuple[str, str]:
    """The master that a driver would use, and where it is set."""
    defaults = spark_defaults(os.environ, spark_home())
    master = chosen_master(settings.spark_master, defaults | settings.spark_conf)
    named = {
        _BY_VARIABLE: settings.spark_master,
        f"{_MASTER_KEY} in PERAGO_SPARK_CONF": settings.spark_conf.get(_MASTER_KEY),
        f"{_MASTER_KEY} in spark-defaults.conf": defaults.get(_MASTER_KEY),
    }
    return master, next((name for name, value in named.items() if value == master), "the default")


def _connect(spark: ConnectServer, settings: Settings, repository: str | None) -> Iterator[Finding]:
    with _session(spark) as session:
        yield Finding("spark connect", "ok", f"{spark.address}, Spark {session.version}")
        yield from committer_findings({key: _in_force(session, key) for key in COMMITTER})
        if settings.store == "lakefs" and repository is not None:
            yield _s3a_access(session, repository)


def _in_force(session: SparkSession, key: str) -> str:
    """The effective value of a setting on the server."""
    # For a Hadoop setting only this statement shows what Hadoop's own files contain.
    shown = session.sql(f"SET {key.removeprefix(_FOR_HADOOP)}").collect()
    return str(shown[0]["value"])


def committer_findings(found: Mapping[str, str]) -> list[Finding]:
    """Judge a server's committer settings: one finding for each that is wrong."""
    wrong = [
        Finding(
            "spark committer",
            "fail",
            f"{key} is {found[key]!r} on the server: {_RISKS.get(key, _RENAMING)}",
            f"set `{key} {value}` in the server's spark-defaults.conf",
        )
        for key, value in COMMITTER.items()
        if found[key] != value
    ]
    return wrong or [Finding("spark committer", "ok", "writes by multipart uploads")]


@contextmanager
def _session(spark: ConnectServer) -> Iterator[SparkSession]:
    try:
        yield spark.open_session(_NOTHING, {})
    finally:
        spark.close_session()


def _s3a_access(session: SparkSession, repository: str) -> Finding:
    """Let the server read a path that doesn't exist: it must answer that it doesn't."""
    try:
        session.read.text(s3a_uri(repository, "main", _NOTHING)).count()
    except Exception as error:  # noqa: BLE001 - any error is a finding
        said = short_message(error) or str(error)
        if _NOT_FOUND in said:
            return Finding("spark s3a", "ok", f"the server reads {repository!r} through s3a")
        return Finding(
            "spark s3a",
            "fail",
            f"the server can't read {repository!r} through s3a: {said}",
            "give the server the jars and s3a settings that docs/how-to/spark.md lists",
        )
    return Finding("spark s3a", "ok", f"the server reads {repository!r} through s3a")
