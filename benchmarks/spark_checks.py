"""All checks of a table against the same by hand: one aggregate, one group-by, one anti-join."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from perago import require_table
from perago.adapters.spark.checks import check_table

if TYPE_CHECKING:
    from pathlib import Path

    from measuring import Samples
    from pyspark.sql import DataFrame, SparkSession

RULES = require_table(
    "plays",
    columns={"play_id": "bigint", "song_id": "bigint", "seconds": "double"},
    rows=1,
    not_null=["play_id", "listener"],
    where=["seconds > 0", "length(listener) > 3"],
    unique=["play_id"],
    references={"song_id": "songs:song_id"},
)


def write_tables(spark: SparkSession, directory: Path, rows: int) -> None:
    """Plays and the songs they are of, with nothing wrong: a breach costs a look at its rows."""
    plays = spark.range(rows, numPartitions=4).selectExpr(
        "id as play_id",
        "id % 100000 as song_id",
        "concat('listener-', id % 50021) as listener",
        "1 + (id % 300) * 1.5D as seconds",
        "timestamp_seconds(1700000000 + id) as played_at",
    )
    plays.write.mode("overwrite").parquet(str(directory / "plays"))
    songs = spark.range(100_000).selectExpr("id as song_id", "concat('title ', id) as title")
    songs.write.mode("overwrite").parquet(str(directory / "songs"))


def by_hand(plays: DataFrame, songs: DataFrame) -> None:
    counts = plays.selectExpr(
        "count(*)",
        "count_if(play_id is null)",
        "count_if(listener is null)",
        "count_if(not coalesce(seconds > 0, false))",
        "count_if(not coalesce(length(listener) > 3, false))",
    ).collect()[0]
    assert counts[0] > 0
    assert not any(counts[1:])
    assert plays.groupBy("play_id").count().where("count > 1").count() == 0
    assert plays.join(songs, "song_id", "left_anti").count() == 0


def measure(spark: SparkSession, directory: Path, rounds: int) -> Samples:
    """Seconds of ``perago`` and ``by hand`` on the tables written before, turn and turn about."""

    def read(path: str, _: object = None) -> DataFrame:
        return spark.read.parquet(str(directory / path))

    def checked() -> None:
        assert not check_table(RULES, read).breaches

    ways = {"perago": checked, "by hand": lambda: by_hand(read("plays"), read("songs"))}
    samples: Samples = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, work in sorted(ways.items(), reverse=bool(number % 2)):
            began = time.perf_counter()
            work()
            if number:  # the first one is for Spark to get warm
                samples[name].append(time.perf_counter() - began)
    return samples
