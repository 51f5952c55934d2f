"""All checks of a table as a guardrail, and by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import spark_by_hand
from measuring import (
    BenchmarkError,
    Report,
    at_most,
    interleaved,
    median,
    say,
    spread_of,
    stopwatch,
)
from shipped import Shipped
from spark_rig import PREFIX, events, rows_of, sparked

from perago.adapters.spark.files import table_reader
from perago.adapters.spark.table_checks import check_table
from perago.demo.songs.tasks import clean
from perago.model.tables import TableRules, TableSource, describe

if TYPE_CHECKING:
    from pathlib import Path

    from measuring import Scale
    from pyspark.sql import DataFrame, SparkSession

TIMES_BY_HAND = 1.3
ROUNDS = 5
KEPT, CATALOGUE = "events/fate=kept", "catalogue"


def measure(scratch: Path, scale: Scale) -> Report:
    rows, rounds = rows_of(scale), scale.rounds_or(ROUNDS)
    tree = events(scale, scratch, rows)
    with sparked(Shipped(scratch / "home")) as here, here.by_hand() as spark:
        race = Race(spark, scratch, tree / PREFIX)
        samples = interleaved({"perago": race.perago, "by hand": race.by_hand}, rounds=rounds)
    ours, theirs = samples["perago"], samples["by hand"]
    return Report(
        name="spark_checks",
        question=f"all checks of clean's table, of {rows:,} events",
        basis=f"medians of {rounds} interleaved rounds, with the least and the most",
        figures=(
            at_most(
                "times one aggregate, one group-by and one anti-join by hand",
                f"{spread_of(ours)}, by hand {spread_of(theirs)}",
                median(ours) / median(theirs),
                TIMES_BY_HAND,
                "x",
            ),
        ),
        samples=samples,
    )


class Race:
    """On plain files for both sides: the reading is the same wherever they are."""

    def __init__(self, spark: SparkSession, scratch: Path, tree: Path) -> None:
        self.spark = spark
        say("  cleaning the events")
        target = scratch / "clean" / "events"
        self.kept = spark_by_hand.clean(spark, f"file://{tree}/raw", f"file://{target}")["kept"]
        self.places = {KEPT: scratch / "clean" / KEPT, CATALOGUE: tree / CATALOGUE}
        spec = clean.workspace
        assert spec is not None
        (self.rules,) = (rules for rules in spec.post if isinstance(rules, TableRules))

    def read(self, source: TableSource) -> DataFrame:
        """As the engine reads it; by hand it is read plainly."""
        return table_reader(self.spark, self.kind_of(source.path)).load(self.uri_of(source.path))

    def plain(self, path: str) -> DataFrame:
        return self.spark.read.format(self.kind_of(path)).load(self.uri_of(path))

    def kind_of(self, path: str) -> str:
        return "json" if path == CATALOGUE else "parquet"

    def uri_of(self, path: str) -> str:
        return f"file://{self.places[path]}"

    def perago(self) -> float:
        with stopwatch() as taken:
            report = check_table(self.rules, self.read)
        if describe(report) or report.rows != self.kept:
            raise BenchmarkError(f"{report.rows} of {self.kept} rows: {describe(report)}")
        return taken[0]

    def by_hand(self) -> float:
        with stopwatch() as taken:
            rows = spark_by_hand.check(self.plain(KEPT), self.plain(CATALOGUE))
        if rows != self.kept:
            raise BenchmarkError(f"{rows} of {self.kept} rows were found by hand")
        return taken[0]
