"""From lines of JSON to a ranking of songs: functions of DataFrames, without Perago.

The results depend neither on the session's time zone nor on how Spark distributes the rows.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIELDS = {
    "event_id": "bigint",
    "listener": "string",
    "song_id": "string",
    "at": "timestamp_ntz",
    "received": "timestamp_ntz",
    "seconds": "double",
}
SESSION_GAP = "INTERVAL 30 MINUTES"


def read_events(spark: SparkSession, raw: str) -> DataFrame:
    """The fields of every line. ``line`` is the text of a line that isn't valid JSON, else null."""
    schema = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
    return spark.read.json(raw, schema=f"{schema}, line string", columnNameOfCorruptRecord="line")


def sort_out(events: DataFrame, *, min_seconds: float, max_days_late: int) -> DataFrame:
    """Every event with its ``fate``. Only kept events have a ``month``.

    A broken event isn't JSON or lacks a field. Of an event's deliveries, the first counts.
    """
    missing = reduce(or_, (F.col(name).isNull() for name in FIELDS))
    # Broken events are grouped by their text: in one group, a single Spark task would get them all.
    deliveries = Window.partitionBy("event_id", "broken", "line").orderBy(
        "received", "at", "listener", "song_id", "seconds"
    )
    fate = (
        F.when(F.col("broken"), "broken")
        .when(F.row_number().over(deliveries) > 1, "duplicate")
        .when(F.col("seconds") < min_seconds, "too_short")
        .when(F.expr(f"received - at > INTERVAL {max_days_late} DAYS"), "late")
        .otherwise("kept")
    )
    month = F.when(F.col("fate") == "kept", F.col("at").cast("string").substr(1, 7))
    return (
        events.withColumn("broken", F.col("line").isNotNull() | missing)
        .withColumn("fate", fate)
        .withColumn("month", month)
        .drop("broken")
    )


def write_sorted_out(events: DataFrame, uri: str) -> None:
    """Write all fates in one pass over the raw data; each is a directory and a table."""
    events.write.mode("overwrite").partitionBy("fate", "month").parquet(uri)


def count_fates(events: DataFrame) -> dict[str, int]:
    """The number of events by fate. On Parquet files, Spark reads only the footers for this."""
    return {row["fate"]: row["count"] for row in events.groupBy("fate").count().collect()}


def with_sessions(listens: DataFrame) -> DataFrame:
    """Add ``opens_session``: true if the listener's previous listen is longer ago than the gap."""
    one_listeners = Window.partitionBy("listener").orderBy("at", "event_id")
    before = F.lag("at").over(one_listeners)
    opens = before.isNull() | (F.col("at") - before > F.expr(SESSION_GAP))
    return listens.withColumn("opens_session", opens)


def rank_songs(listens: DataFrame, catalogue: DataFrame) -> DataFrame:
    """Every month's songs with their listens and the sessions they opened, ranked by listens.

    Places are 1, 2, 3 and so on; of songs with equal listens, the lower id comes first.
    """
    by_listens = Window.partitionBy("month").orderBy(F.desc("listens"), "song_id")
    return (
        with_sessions(listens)
        .groupBy("month", "song_id")
        .agg(
            F.count("*").alias("listens"),
            F.count_if("opens_session").alias("sessions"),
            # Whole numbers: their sum doesn't depend on the order.
            F.sum(F.round("seconds").cast("bigint")).alias("seconds"),
        )
        .join(F.broadcast(catalogue.select("song_id", "title", "artist")), "song_id")
        .withColumn("place", F.row_number().over(by_listens))
        .select("month", "place", "song_id", "title", "artist", "listens", "sessions", "seconds")
    )


def top_of_months(ranking: DataFrame, top: int) -> DataFrame:
    return ranking.where(F.col("place") <= top).orderBy("month", "place")


def top_songs(ranking: DataFrame, top: int) -> DataFrame:
    """The songs with the most listens in all months together."""
    sums = [F.sum(name).alias(name) for name in ("listens", "sessions", "seconds")]
    return (
        ranking.groupBy("song_id", "title", "artist")
        .agg(*sums)
        .orderBy(F.desc("listens"), "song_id")
        .limit(top)
    )


def sum_months(ranking: DataFrame) -> DataFrame:
    sums = [F.sum(name).alias(name) for name in ("listens", "sessions", "seconds")]
    return ranking.groupBy("month").agg(*sums).orderBy("month")


def count_hours(listens: DataFrame) -> DataFrame:
    """Listens by weekday (0 is Monday) and hour."""
    hour = F.col("at").cast("string").substr(12, 2).cast("int")
    return (
        listens.groupBy(F.weekday("at").alias("weekday"), hour.alias("hour"))
        .agg(F.count("*").alias("listens"))
        .orderBy("weekday", "hour")
    )
