"""One object larger than most memories, from and to lakeFS, against lakectl."""

from __future__ import annotations

import json
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


def measure(scratch: Path, scale: Scale) -> Report:
    size = scale.pick(quick=256, full=2048) * MIB
    rounds = scale.rounds_or(3)
    say(f"  preparing one object of {size // MIB:,} MiB")
    tree = scratch / "tree"
    write_file(tree, size)
    with lake(scratch) as here:
        race = Race(here, here.shipped(REPOSITORY, tree), tree / NAME)
        uncached = interleaved(
            {
                "attempt, perago": race.attempt,
                "both ways, lakectl": race.lakectl,
                UNCACHED: race.fetch_uncached,
            },
            rounds=rounds,
            warm_ups=0,
        )[UNCACHED]
        race.shipped.close()
    return Report(
        name="lakefs_big_object",
        question=f"one object of {size // MIB:,} MiB on lakeFS, fetched, appended to, uploaded",
        basis=f"medians of {rounds} interleaved rounds, each attempt in a fresh process",
        figures=(
            throughput("fetched, verified, being cached", "fetch", size, size, race.samples),
            Figure(
                "fetched and verified, without the cache: times lakectl's throughput",
                f"perago {size / MIB / median(uncached):,.0f} MiB/s, {spread_of(uncached)}",
                median(race.samples["fetch, lakectl"]) / median(uncached),
            ),
            throughput("uploaded", "upload", size + APPENDED, size, race.samples),
            at_most(
                "peak memory, MiB",
                f"the most of any round (before the attempt {max(race.idle):.0f} MiB)",
                max(race.peak),
                MEMORY_BAR_MIB,
                " MiB",
            ),
        ),
        samples=race.samples | {UNCACHED: uncached, "peak memory in MiB": race.peak},
    )


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
        self.samples: Samples = {
            f"{way}, {who}": [] for way in ("fetch", "upload") for who in ("perago", "lakectl")
        }
        self.peak: list[float] = []
        self.idle: list[float] = []

    def attempt(self) -> float:
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
        self.samples["fetch, perago"].append(found["fetch"])
        self.samples["upload, perago"].append(found["upload"])
        self.peak.append(found["peak_mib"])
        self.idle.append(found["idle_mib"])
        return float(found["attempt"])

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

    def lakectl(self) -> float:
        output = self.here.new_output()
        there = f"lakefs://{REPOSITORY}/{PEER_BRANCH}"
        fetch = self.here.lakectl("fs", "download", f"{there}/{NAME}", str(output))
        if output.stat().st_size != self.source.stat().st_size:
            raise SystemExit("lakectl fetched something else")
        upload = self.here.lakectl("fs", "upload", "-s", str(output), f"{there}/uploaded.bin")
        output.unlink()
        self.samples["fetch, lakectl"].append(fetch)
        self.samples["upload, lakectl"].append(upload)
        return fetch + upload


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
