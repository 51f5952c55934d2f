"""What a person would write in a notebook to do what the songs' ``clean`` and its checks do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measuring import BenchmarkError
from pyspark.sql import functions as sf

from perago.demo.songs.listens import count_fates, read_events, sort_out, write_sorted_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = ("event_id", "listener", "song_id", "at", "received", "seconds", "month")
CONDITIONS = ("seconds > 0", "received >= at")


def clean(spark: SparkSession, raw: str, target: str) -> dict[str, int]:
    fates = sort_out(read_events(spark, raw), min_seconds=30.0, max_days_late=7)
    write_sorted_out(fates, target)
    return count_fates(spark.read.parquet(target))


def check(kept: DataFrame, catalogue: DataFrame) -> int:
    """One aggregate, one group-by, one anti-join; how many rows there are, none of them bad."""
    bad = [sf.count_if(sf.col(name).isNull()) for name in COLUMNS]
    bad += [sf.count_if(~sf.coalesce(sf.expr(one), sf.lit(False))) for one in CONDITIONS]  # noqa: FBT003
    rows, *found = kept.agg(sf.count("*"), *bad).collect()[0]
    repeated = kept.groupBy("event_id").count().where("count > 1").count()
    orphans = kept.join(catalogue, "song_id", "left_anti").count()
    if any(found) or repeated or orphans or not rows:
        raise BenchmarkError(f"by hand other data was found: {found}, {repeated}, {orphans}")
    return int(rows)
