"""A table in twenty partitions, written to lakeFS by an attempt and by hand."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from lakefs_rig import lake
from measuring import (
    BenchmarkError,
    Figure,
    Report,
    at_most,
    interleaved,
    median,
    spread_of,
    stopwatch,
)
from shipped import BRANCH
from spark_rig import PREFIX, input_ref, spark_task, sparked, steps_told

from perago.adapters.spark.configuration import s3a_uri

if TYPE_CHECKING:
    from pathlib import Path

    from measuring import Samples, Scale
    from pyspark.sql import SparkSession
    from spark_rig import Attempted, Sparked

    from perago import SparkWorkspace

PARTITIONS = 20
TIMES_BY_HAND = 1.05
ROUNDS = 5


def measure(scratch: Path, scale: Scale) -> Report:
    rows = scale.rows or scale.pick(quick=20_000, full=20_000_000)
    rounds = scale.rounds_or(ROUNDS)
    tree = scratch / "tree"
    tree.mkdir()
    (tree / "README").write_text("A repository needs a commit to begin at.\n")
    with lake(scratch) as server, sparked(server.shipped("partitions", tree)) as here:
        race = Race(here, rows)
        samples = interleaved({"perago": race.perago, "by hand": race.by_hand}, rounds=rounds)
    return Report(
        name="spark_partitions",
        question=f"{rows:,} rows written to lakeFS in {PARTITIONS} partitions",
        basis=f"medians of {rounds} interleaved rounds, with the least and the most",
        figures=figures(samples, race.last),
        samples=samples,
    )


def write(spark: SparkSession, rows: int, target: str) -> None:
    columns = [f"id % {PARTITIONS} AS part", "id", "sha2(string(id), 256) AS text", "id / 7 AS n"]
    spark.range(rows).selectExpr(*columns).write.partitionBy("part").parquet(target)


class Race:
    def __init__(self, here: Sparked, rows: int) -> None:
        self.here = here
        self.rows = rows
        self.ref = input_ref(here.shipped)
        self.task = spark_task("partitions", self._write)
        self.last: Attempted | None = None

    def _write(self, ws: SparkWorkspace) -> None:
        write(ws.spark, self.rows, ws.output("table"))

    def perago(self) -> dict[str, float]:
        self.last = self.here.attempt(self.task, self.ref)
        self._assert_written(self.last.ref)
        return {"perago": self.last.seconds, "perago, outside": self.last.outside}

    def by_hand(self) -> float:
        shipped, branch = self.here.shipped, f"by-hand-{secrets.token_hex(4)}"
        shipped.store.create_branch(shipped.repository, branch, BRANCH)
        target = s3a_uri(shipped.repository, branch, f"{PREFIX}/table")
        with self.here.by_hand() as spark, stopwatch() as taken:
            write(spark, self.rows, target)
        self._assert_written(branch)
        return taken[0]

    def _assert_written(self, ref: str) -> None:
        repository = self.here.shipped.repository
        with self.here.by_hand() as spark:
            table = spark.read.parquet(s3a_uri(repository, ref, f"{PREFIX}/table"))
            found = table.groupBy("part").count().collect()
        if len(found) != PARTITIONS or sum(row["count"] for row in found) != self.rows:
            raise BenchmarkError(f"{ref} has another table than was written: {found}")


def figures(samples: Samples, last: Attempted | None) -> tuple[Figure, ...]:
    ours, theirs, outside = (samples[name] for name in ("perago", "by hand", "perago, outside"))
    return (
        at_most(
            "times by hand with the magic committer",
            f"{spread_of(ours)}, by hand {spread_of(theirs)}",
            median(ours) / median(theirs),
            TIMES_BY_HAND,
            "x",
        ),
        Figure("outside of the body", f"{spread_of(outside)}{steps_told(last)}", median(outside)),
    )
