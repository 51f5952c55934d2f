"""What may keep Spark tasks from running: here, on a cluster, or on a Spark Connect server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.spark.configuration import chosen_master
from perago.adapters.spark.driver import assert_reachable
from perago.adapters.spark.failures import essence
from perago.adapters.spark.partition_overwrite import PROTOCOL_KEY
from perago.adapters.spark.remote import Remote
from perago.adapters.spark.s3a import COMMITTER, uri_of
from perago.cli.diagnosis import Finding, has_a_store
from perago.errors import PeragoError
from perago.machine.spark_home import VERSION, is_installed
from perago.machine.spark_jars import cached_s3_jars
from perago.machine.spark_java import installed_spark_java
from perago.wiring import spark_engine, spark_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from perago.settings import Settings

_NOTHING = "perago-doctor-looks-for-nothing"
_NOT_FOUND = "PATH_NOT_FOUND"


def diagnose_spark(settings: Settings, repository: str | None) -> Iterator[Finding]:
    """Go the way of a Spark task, as far as that changes nothing.

    Where PySpark isn't installed no task here needs it. With a ``repository`` a Spark Connect
    server is asked to look into it.
    """
    if not is_installed():
        yield Finding("spark", "ok", "PySpark isn't installed: no Spark tasks here")
        return
    if not has_a_store(settings):  # which is told already
        return
    try:
        spark = spark_of(settings)
        spark_engine(settings, spark).assert_within_reach()
        if isinstance(spark, Remote):
            yield from _connect(spark, settings, repository)
        else:
            yield from _driver(settings)
    except PeragoError as error:
        yield Finding("spark", "fail", error.message, error.fix)


def _driver(settings: Settings) -> Iterator[Finding]:
    where = chosen_master(settings.spark_master, settings.spark_conf)
    assert_reachable(where)
    yield Finding("spark", "ok", f"PySpark {VERSION}, {where}")
    java = installed_spark_java()
    if java is None:
        yield Finding("spark java", "ok", "none that fits: fetched when the first task needs it")
    else:
        yield Finding("spark java", "ok", f"{java.java.program}, {java.java.feature}")
    if settings.store == "lakefs":
        jars = cached_s3_jars()
        found = f"{len(jars)} in the cache" if jars else "fetched when the first task needs them"
        yield Finding("spark jars", "ok", found)


def _connect(spark: Remote, settings: Settings, repository: str | None) -> Iterator[Finding]:
    with _session(spark) as session:
        yield Finding("spark connect", "ok", f"{spark.address}, Spark {session.version}")
        committer = session.conf.get(PROTOCOL_KEY, "")
        if committer == COMMITTER[PROTOCOL_KEY]:
            yield Finding("spark committer", "ok", "writes by multipart uploads")
        else:
            yield Finding(
                "spark committer",
                "fail",
                f"{PROTOCOL_KEY} is {committer!r} on the server: writes would be renamed, slowly "
                "and not in one step",
                "set what docs/how-to/spark.md lists in the server's spark-defaults.conf",
            )
        if settings.store == "lakefs" and repository is not None:
            yield _way_to(session, repository)


@contextmanager
def _session(spark: Remote) -> Iterator[SparkSession]:
    try:
        yield spark.begin(_NOTHING, {})
    finally:
        spark.end()


def _way_to(session: SparkSession, repository: str) -> Finding:
    """Have the server look for what isn't there: that it isn't is the right answer."""
    try:
        session.read.text(uri_of(repository, "main", _NOTHING)).count()
    except Exception as error:  # noqa: BLE001 - whatever it says is the finding
        said = essence(error) or str(error)
        if _NOT_FOUND in said:
            return Finding("spark s3a", "ok", f"the server reads {repository!r} through s3a")
        return Finding(
            "spark s3a",
            "fail",
            f"the server can't read {repository!r} through s3a: {said}",
            "give the server the jars and s3a settings that docs/how-to/spark.md lists",
        )
    return Finding("spark s3a", "ok", f"the server reads {repository!r} through s3a")
