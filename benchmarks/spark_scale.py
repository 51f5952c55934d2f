"""Time and memory of the songs' Spark tasks from a million events to a hundred million.

Each size has a process of its own, which does what a worker's does. Also a program: that process.

    python spark_scale.py HOME
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import BenchmarkError, Figure, Report, at_most, failures, peak_mib, say, settle
from shipped import Shipped
from spark_rig import BYTES_PER_ROW, events, input_ref, patient, rows_of, sparked

from perago.demo.songs.tasks import clean, rank

if TYPE_CHECKING:
    from measuring import Scale

SECONDS_TIMES_LINEAR = 1.25
WORKER_TIMES_SMALLEST = 1.25
DRIVER_TIMES_MIDDLE = 1.25
NEEDED = 3
"""Times the raw data: they are in the store as well, and are sorted on disk, and cleaned."""

RESULTS = "spark-scale.json"
HEAP = {"spark.driver.memory": "2g"}
"""For all sizes, and a fraction of the largest one's data: a JVM uses what it is given."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a pipeline on so many events took; its tasks' seconds are those of whole attempts."""

    rows: int
    clean: float
    rank: float
    driver_mib: float
    worker_mib: float

    @property
    def seconds(self) -> float:
        return self.clean + self.rank


def measure(scratch: Path, scale: Scale) -> Report:
    """Leaves the figures in the working directory, if there is one, for ``spark_scale_plot``."""
    middle = rows_of(scale)
    sizes = []
    for rows in (middle // 20, middle, 5 * middle):
        size = Size(rows, *[math.nan] * 4)
        with failures.kept(f"{rows:,} events"):
            size = measured(scratch, scale, rows)
        sizes.append(size)
    results = (scale.workdir or scratch) / RESULTS
    results.write_text(
        json.dumps([asdict(s) for s in sizes if not math.isnan(s.seconds)], indent=1) + "\n"
    )
    say(f"  the figures are in {results}")
    return Report(
        name="spark_scale",
        question="clean and rank, embedded, by number of events, with a heap of 2 GiB",
        basis="one attempt each in a fresh process; the driver's start isn't counted",
        figures=figures(sizes),
        samples={
            f"{size.rows} events, {name}": [value]
            for size in sizes
            for name, value in asdict(size).items()
            if name != "rows" and not math.isnan(value)
        },
    )


def measured(scratch: Path, scale: Scale, rows: int) -> Size:
    free, needed = shutil.disk_usage(scratch).free, NEEDED * BYTES_PER_ROW * rows
    if free < needed:
        raise BenchmarkError(
            f"{rows:,} events need {needed / 1e9:.0f} GB, {scratch} has {free / 1e9:.0f} GB free"
        )
    home = scratch / f"home-{rows}"
    tree = events(scale, scratch, rows)
    shipped = Shipped(home)
    shipped.fill(tree)
    shipped.close()
    if rows != rows_of(scale):  # no other benchmark uses it
        shutil.rmtree(tree)
    settle()
    say(f"  clean and rank on {rows:,} events")
    ran = subprocess.run(
        [sys.executable, __file__, str(home)], check=True, stdout=subprocess.PIPE, text=True
    )
    shutil.rmtree(home)
    size = Size(rows=rows, **json.loads(ran.stdout))
    say(
        f"  clean {size.clean:.1f} s, rank {size.rank:.1f} s, "
        f"driver {size.driver_mib:,.0f} MiB, worker {size.worker_mib:.0f} MiB"
    )
    return size


def figures(sizes: list[Size]) -> tuple[Figure, ...]:
    small, middle, large = sizes
    growth = large.rows / middle.rows
    return (
        *(
            Figure(
                f"{size.rows:,} events",
                f"clean {size.clean:.1f} s, rank {size.rank:.1f} s, driver "
                f"{size.driver_mib:,.0f} MiB, worker {size.worker_mib:.0f} MiB",
                size.seconds,
            )
            for size in sizes
        ),
        at_most(
            f"seconds from {middle.rows:,} to {large.rows:,}: times linear",
            f"{middle.seconds:.1f} s and {large.seconds:.1f} s",
            large.seconds / middle.seconds / growth,
            SECONDS_TIMES_LINEAR,
            "x",
        ),
        at_most(
            "the driver's peak memory: times the middle size's",
            f"{middle.driver_mib:,.0f} MiB and {large.driver_mib:,.0f} MiB",
            large.driver_mib / middle.driver_mib,
            DRIVER_TIMES_MIDDLE,
            "x",
        ),
        at_most(
            "the worker's peak memory: times the smallest size's",
            f"{small.worker_mib:.0f} MiB and {large.worker_mib:.0f} MiB",
            large.worker_mib / small.worker_mib,
            WORKER_TIMES_SMALLEST,
            "x",
        ),
    )


def one_size(home: Path) -> dict[str, float]:
    shipped = Shipped(home, spark_conf=HEAP)
    with sparked(shipped) as here:
        cleaned = here.attempt(patient(clean), input_ref(shipped))
        ranked = here.attempt(patient(rank), cleaned.ref)
        return {
            "clean": cleaned.seconds,
            "rank": ranked.seconds,
            "driver_mib": here.driver_peak_mib,
            "worker_mib": peak_mib(),
        }


if __name__ == "__main__":
    print(json.dumps(one_size(Path(sys.argv[1]))))
