"""The songs' ``clean`` as an attempt, against the same PySpark code by hand."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import spark_by_hand
from lakefs_rig import lake
from measuring import (
    BenchmarkError,
    Figure,
    Report,
    apart,
    at_most,
    interleaved,
    median,
    spread_of,
    stopwatch,
)
from shipped import Shipped
from spark_rig import PREFIX, events, input_ref, patient, rows_of, sparked, steps_told

from perago.adapters.spark.configuration import s3a_uri
from perago.demo.songs.tasks import clean

if TYPE_CHECKING:
    from measuring import Samples, Scale
    from spark_rig import Attempted, Sparked

TIMES_BY_HAND = 1.10
ROUNDS = 3
_UNCHECKED = ("perago, unchecked", "by hand, unchecked")


def measure_files(scratch: Path, scale: Scale) -> Report:
    tree = events(scale, scratch, rows_of(scale))
    shipped = Shipped(scratch / "home")
    shipped.fill(tree)
    with sparked(shipped) as here:
        race = Race(here, Files(tree, scratch))
        return race.report("spark_embedded", "embedded, against plain files", scale)


def measure_lakefs(scratch: Path, scale: Scale) -> Report:
    tree = events(scale, scratch, rows_of(scale))
    with lake(scratch) as server, sparked(server.shipped("clean", tree)) as here:
        race = Race(here, Branches(here.shipped))
        return race.report("spark_lakefs", "on lakeFS, against a branch by s3a", scale)


class Place(Protocol):
    """Where the work by hand is done."""

    def uri(self, path: str) -> str: ...

    def begin(self) -> None:
        """Have a new place for what is written."""

    def output(self, path: str) -> str: ...

    def end(self) -> None: ...


class Files:
    def __init__(self, tree: Path, scratch: Path) -> None:
        self._tree = tree
        self._scratch = scratch
        self._outputs = Path()

    def begin(self) -> None:
        self._outputs = apart(self._scratch)
        self._outputs.mkdir()

    def uri(self, path: str) -> str:
        return f"file://{self._tree}/{PREFIX}/{path}"

    def output(self, path: str) -> str:
        return f"file://{self._outputs}/{path}"

    def end(self) -> None:
        shutil.rmtree(self._outputs)


class Branches:
    """A branch for each round, at the commit that the attempts begin at."""

    def __init__(self, shipped: Shipped) -> None:
        self._shipped = shipped
        self._branch = ""

    def begin(self) -> None:
        self._branch = f"by-hand-{secrets.token_hex(4)}"
        store, repository = self._shipped.store, self._shipped.repository
        store.create_branch(repository, self._branch, input_ref(self._shipped))

    def uri(self, path: str) -> str:
        return s3a_uri(self._shipped.repository, self._branch, f"{PREFIX}/{path}")

    output = uri

    def end(self) -> None: ...


class Race:
    """Both sides of it, in one driver."""

    def __init__(self, here: Sparked, place: Place) -> None:
        self.here = here
        self.place = place
        self.ref = input_ref(here.shipped)
        self.clean = patient(clean)
        self.last: Attempted | None = None

    def perago(self) -> dict[str, float]:
        self.last = self.here.attempt(self.clean, self.ref)
        return {
            "perago": self.last.seconds,
            "perago, unchecked": self.last.unchecked,
            "perago, outside": self.last.outside,
        }

    def by_hand(self) -> dict[str, float]:
        self.place.begin()
        with self.here.by_hand() as spark:
            with stopwatch() as working:
                target = self.place.output("events")
                counts = spark_by_hand.clean(spark, self.place.uri("raw"), target)
            with stopwatch() as checking:
                kept = spark.read.parquet(f"{target}/fate=kept")
                rows = spark_by_hand.check(kept, spark.read.json(self.place.uri("catalogue")))
        self.place.end()
        if self.last and (counts != self.last.result or rows != counts["kept"]):
            raise BenchmarkError(f"perago found {self.last.result}, by hand it was {counts}")
        return {"by hand": working[0] + checking[0], "by hand, unchecked": working[0]}

    def report(self, name: str, where: str, scale: Scale) -> Report:
        rounds = scale.rounds_or(ROUNDS)
        samples = interleaved({"perago": self.perago, "by hand": self.by_hand}, rounds=rounds)
        return Report(
            name=name,
            question=f"clean on {rows_of(scale):,} events, {where}",
            basis=f"medians of {rounds} interleaved rounds, with the least and the most",
            figures=figures(samples, self.last),
            samples=samples,
        )


def figures(samples: Samples, last: Attempted | None) -> tuple[Figure, ...]:
    def times(what: str, ours: str, theirs: str) -> Figure:
        return at_most(
            what,
            f"{spread_of(samples[ours])}, by hand {spread_of(samples[theirs])}",
            median(samples[ours]) / median(samples[theirs]),
            TIMES_BY_HAND,
            "x",
        )

    outside = samples["perago, outside"]
    return (
        times("the attempt without its checks: times by hand", *_UNCHECKED),
        times("with its checks: times by hand with the same checks", "perago", "by hand"),
        Figure(
            "outside of body and checks", f"{spread_of(outside)}{steps_told(last)}", median(outside)
        ),
    )
