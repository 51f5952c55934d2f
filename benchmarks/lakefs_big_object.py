"""One object larger than most memories, from and to lakeFS, against lakectl."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from big_file import APPENDED, NAME, append, write_file
from lakefs_rig import PEER_BRANCH, lake
from measuring import (
    MIB,
    BenchmarkError,
    Figure,
    Report,
    at_least,
    at_most,
    interleaved,
    median,
    peak_mib,
    say,
    spread_of,
    stopwatch,
)
from shipped import BRANCH, Shipped

from perago.model.workspace import WorkspaceRef
from perago.testing.bench import RecordingJournal
from perago.wiring import build_runtime, local_engine, open_lakefs

if TYPE_CHECKING:
    from lakefs_rig import Lake
    from measuring import Samples, Scale

REPOSITORY = "big-object"
TIMES_LAKECTL = 0.9
MEMORY_BAR_MIB = 300.0
UNCACHED = "fetch, perago without its cache"
PEAK, IDLE = "peak memory in MiB", "memory before the attempt in MiB"


def measure(scratch: Path, scale: Scale) -> Report:
    size = scale.pick(quick=256, full=2048) * MIB
    rounds = scale.rounds_or(3)
    say(f"  preparing one object of {size // MIB:,} MiB")
    tree = scratch / "tree"
    write_file(tree, size)
    with lake(scratch) as here:
        race = Race(here, here.shipped(REPOSITORY, tree), tree / NAME)
        samples = interleaved(
            {
                "attempt, perago": race.attempt,
                "both ways, lakectl": race.lakectl,
                UNCACHED: race.fetch_uncached,
            },
            rounds=rounds,
            warm_ups=0,
        )
        race.shipped.close()
    uncached = samples[UNCACHED]
    return Report(
        name="lakefs_big_object",
        question=f"one object of {size // MIB:,} MiB on lakeFS, fetched, appended to, uploaded",
        basis=f"medians of {rounds} interleaved rounds, each attempt in a fresh process",
        figures=(
            throughput("fetched, verified, being cached", "fetch", size, size, samples),
            Figure(
                "fetched and verified, without the cache: times lakectl's throughput",
                f"perago {size / MIB / median(uncached):,.0f} MiB/s, {spread_of(uncached)}",
                median(samples["fetch, lakectl"]) / median(uncached),
            ),
            throughput("uploaded", "upload", size + APPENDED, size, samples),
            at_most(
                "peak memory, MiB",
                f"the most of any round (before the attempt {most(samples[IDLE]):.0f} MiB)",
                most(samples[PEAK]),
                MEMORY_BAR_MIB,
                " MiB",
            ),
        ),
        samples=samples,
    )


def most(values: list[float]) -> float:
    return max(values, default=math.nan)


def throughput(what: str, way: str, ours: int, theirs: int, samples: Samples) -> Figure:
    """``ours`` and ``theirs`` are the bytes that each of them moved."""
    taken = {who: samples[f"{way}, {who}"] for who in ("perago", "lakectl")}
    speed = {
        "perago": ours / MIB / median(taken["perago"]),
        "lakectl": theirs / MIB / median(taken["lakectl"]),
    }
    return at_least(
        f"{what}: times lakectl's throughput",
        "; ".join(f"{who} {speed[who]:,.0f} MiB/s, {spread_of(taken[who])}" for who in speed),
        speed["perago"] / speed["lakectl"],
        TIMES_LAKECTL,
        "x",
    )


class Race:
    def __init__(self, here: Lake, shipped: Shipped, source: Path) -> None:
        self.here = here
        self.shipped = shipped
        self.source = source

    def attempt(self) -> dict[str, float]:
        environment = {
            **os.environ,
            **self.here.server.settings,
            "PERAGO_CACHE": str(self.here.new_cache()),
        }
        ran = subprocess.run(
            [sys.executable, __file__, str(self.here.new_output())],
            check=True,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        found = json.loads(ran.stdout)
        return {
            "attempt, perago": found["attempt"],
            "fetch, perago": found["fetch"],
            "upload, perago": found["upload"],
            PEAK: found["peak_mib"],
            IDLE: found["idle_mib"],
        }

    def fetch_uncached(self) -> float:
        """In this process; the cache's copy costs a second writing where blocks can't be shared."""
        settings = self.shipped.settings.model_copy(update={"cache_bytes": 0})
        store = open_lakefs(settings)
        ref = self.shipped.head.id
        where = WorkspaceRef(repository=REPOSITORY, branch=BRANCH, ref_type="commit", ref=ref)
        directory = self.here.new_output()
        directory.mkdir()
        with stopwatch() as taken:
            local_engine().open(store, where, "/", directory)
        store.close()
        shutil.rmtree(directory)
        return taken[0]

    def lakectl(self) -> dict[str, float]:
        output = self.here.new_output()
        there = f"lakefs://{REPOSITORY}/{PEER_BRANCH}"
        fetch = self.here.lakectl("fs", "download", f"{there}/{NAME}", str(output))
        if output.stat().st_size != self.source.stat().st_size:
            raise BenchmarkError("lakectl fetched something else")
        upload = self.here.lakectl("fs", "upload", "-s", str(output), f"{there}/uploaded.bin")
        output.unlink()
        return {
            "both ways, lakectl": fetch + upload,
            "fetch, lakectl": fetch,
            "upload, lakectl": upload,
        }


def attempt(home: Path) -> dict[str, float]:
    """One attempt that appends to the object, in this process."""
    journal = RecordingJournal()
    shipped = Shipped(home, repository=REPOSITORY, store="lakefs")
    runtime = build_runtime(shipped.settings, journal)
    runtime.store.head(REPOSITORY, BRANCH)
    idle = peak_mib()
    seconds = shipped.attempt(append, runtime=runtime)
    upload = journal.of("stage.upload")
    return {
        "attempt": seconds,
        "fetch": float(str(journal.of("fetch")["seconds"])),
        "upload": float(str(upload["seconds"])),
        "idle_mib": idle,
        "peak_mib": peak_mib(),
    }


if __name__ == "__main__":
    print(json.dumps(attempt(Path(sys.argv[1]))))
