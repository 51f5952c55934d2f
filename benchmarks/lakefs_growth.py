"""What staging the same ten changes on lakeFS costs in a small and in a large workspace."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakefs_rig import lake
from measuring import BenchmarkError, Figure, Report, at_most, interleaved, median, say, spread_of
from shipped import BRANCH
from staging_growth import CHANGED, FILE_BYTES, FILES_PER_DIRECTORY, bare_stat_pass

from perago.ports.environment import SilentJournal

if TYPE_CHECKING:
    from pathlib import Path

    from lakefs_rig import Lake, Served
    from measuring import Samples, Scale

UNEXPLAINED_PART = 0.1
STAGING_STEPS = ("stage.branch", "stage.upload", "stage.commit")
SERIES = ("scan", "stage", "server's commit", "stat pass", "requests", "bytes sent")


@dataclass
class Watch(SilentJournal):
    """Notes what the steps took, and what the server had done by the end of the staging commit."""

    here: Lake
    seconds: dict[str, float] = field(default_factory=dict)
    bytes_sent: int = 0
    committed: Served | None = None

    def event(self, step: str, **fields: object) -> None:
        if (seconds := fields.get("seconds")) is not None:
            self.seconds[step] = float(str(seconds))
        if step == "stage.upload":
            self.bytes_sent = int(str(fields["bytes_moved"]))
        if step == "stage.commit":
            self.committed = self.here.served()


def measure(scratch: Path, scale: Scale) -> Report:
    sizes = (1_000, scale.pick(quick=5_000, full=100_000))
    rounds = scale.rounds_or(4)
    with lake(scratch) as here:
        small, large = (Workspace(here, files) for files in sizes)
        taken = interleaved({f"{w.files} objects": w.round for w in (small, large)}, rounds=rounds)
    for workspace in (small, large):
        workspace.samples = {name: taken[f"{workspace.files} objects, {name}"] for name in SERIES}
    return Report(
        name="lakefs_growth",
        question=f"{sizes[0]:,} and {sizes[1]:,} objects of 1 kB on lakeFS, "
        f"the same {len(CHANGED)} changed",
        basis=f"medians of {rounds} interleaved rounds, with the least and the most",
        figures=figures(small, large),
        samples=taken,
    )


class Workspace:
    """One size of workspace in a repository of its own, and what was measured on it."""

    def __init__(self, here: Lake, files: int) -> None:
        say(f"  preparing {files:,} objects of {FILE_BYTES:,} bytes")
        self.here = here
        self.files = files
        self.random = random.Random(1)
        self.samples: Samples = {name: [] for name in SERIES}
        # Filled by the round that isn't counted: what a fetch costs isn't the question here.
        self.cache = here.new_cache()
        tree = here.new_output()
        for number in range(files):
            path = tree / f"d{number // FILES_PER_DIRECTORY:03}" / f"f{number:06}.bin"
            if number % FILES_PER_DIRECTORY == 0:
                path.parent.mkdir(parents=True)
            path.write_bytes(self.random.randbytes(FILE_BYTES))
        self.shipped = here.shipped(f"growth-{files}", tree)
        shutil.rmtree(tree)

    def round(self) -> dict[str, float]:
        watch = Watch(self.here)
        runtime = self.here.runtime(self.shipped, watch, self.cache)
        bare: list[float] = []
        before: list[Served] = []

        def body(files: Path) -> None:
            for path in CHANGED:
                (files / path).write_bytes(self.random.randbytes(FILE_BYTES))
            bare.append(bare_stat_pass(files))
            before.append(self.here.served())

        input_ref = self.shipped.head.id
        self.shipped.attempt(body, runtime=runtime)
        runtime.store.close()
        self._check(input_ref)
        assert watch.committed is not None
        served = watch.committed.since(before[0])
        values = (
            watch.seconds["post"],
            sum(watch.seconds[name] for name in STAGING_STEPS),
            float(served.seconds["Commit"]),
            bare[0],
            float(sum(served.requests.values())),
            float(watch.bytes_sent),
        )
        names = (f"{self.files} objects, {name}" for name in SERIES)
        return dict(zip(names, values, strict=True))

    def _check(self, before: str) -> None:
        differences = self.shipped.store.diff(self.shipped.repository, before, BRANCH)
        if sorted(found.key for found in differences) != CHANGED:
            raise BenchmarkError("something else was published than was changed")

    def median(self, name: str) -> float:
        return median(self.samples[name])

    @property
    def client_side(self) -> float:
        return self.median("stage") - self.median("server's commit")


def figures(small: Workspace, large: Workspace) -> tuple[Figure, ...]:
    growth = large.median("scan") + large.client_side - small.median("scan") - small.client_side
    explained = large.median("scan") - small.median("scan")
    return (
        *(
            Figure(
                f"scan; branch, upload, commit; {w.files:,} objects",
                f"{spread_of(w.samples['scan'])}; {spread_of(w.samples['stage'])}; bare scandir "
                f"and stat {spread_of(w.samples['stat pass'])}",
                w.median("scan") + w.median("stage"),
            )
            for w in (small, large)
        ),
        Figure(
            "lakeFS's own time for the commit",
            f"{spread_of(small.samples[name := SERIES[2]])} and {spread_of(large.samples[name])}",
            large.median(name) - small.median(name),
        ),
        at_most(
            "growth that isn't the stat pass, nor lakeFS's own commit",
            f"grew {1e3 * growth:.0f} ms, the pass {1e3 * explained:.0f} ms, "
            f"the rest {1e3 * (growth - explained):.0f} ms",
            (growth - explained) / growth,
            UNEXPLAINED_PART,
            " of it",
        ),
        *(
            at_most(
                f"times the {name}",
                f"{small.median(name):,.0f} and {large.median(name):,.0f}",
                large.median(name) / small.median(name),
                1.0,
                "x",
            )
            for name in ("requests", "bytes sent")
        ),
    )
