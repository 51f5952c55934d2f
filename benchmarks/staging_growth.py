"""What finding and staging the same ten changes costs in a small and in a large workspace."""

from __future__ import annotations

import os
import random
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import BenchmarkError, Figure, Report, apart, at_most, interleaved, median, say
from shipped import Shipped

from perago.ports.environment import SilentJournal

if TYPE_CHECKING:
    from measuring import Samples, Scale

FILE_BYTES = 1_000
FILES_PER_DIRECTORY = 250
CHANGED = [
    f"d{number // FILES_PER_DIRECTORY:03}/f{number:06}.bin" for number in range(0, 1_000, 100)
]
UNEXPLAINED_PART = 0.1
BYTES_READ_GROWTH = 1.0


@dataclass
class Watch(SilentJournal):
    """Looks at the clock and at what was read between the body's end and the staging commit."""

    workspace: str
    seconds: dict[str, float] = field(default_factory=dict)
    files_read: list[str] = field(default_factory=list)
    read_anywhere: int = 0
    uploaded: int = 0
    open: bool = False

    def started(self, step: str) -> None:
        if step == "post":
            self.read_anywhere = -bytes_read_so_far()
            self.open = True

    def event(self, step: str, **fields: object) -> None:
        if not self.open:
            return
        if seconds := fields.get("seconds"):
            self.seconds[step] = float(str(seconds))
        if step == "stage.upload":
            self.uploaded = int(str(fields["bytes_moved"]))
        if step == "stage.commit":
            self.read_anywhere += bytes_read_so_far()
            self.open = False

    def opened(self, event: str, arguments: tuple[object, ...]) -> None:
        """The audit hook: hooks can't be taken out again, so it minds only its own interval."""
        if self.open and event == "open" and str(arguments[0]).startswith(self.workspace):
            self.files_read.append(str(arguments[0]))

    @property
    def scan(self) -> float:
        return self.seconds["post"]

    @property
    def stage(self) -> float:
        return sum(taken for step, taken in self.seconds.items() if step.startswith("stage."))


def measure(scratch: Path, scale: Scale) -> Report:
    sizes = (1_000, scale.pick(quick=10_000, full=100_000))
    rounds = scale.rounds_or(5)
    small, large = (Workspace(scratch / f"files-{files}", files) for files in sizes)
    samples = interleaved({f"{w.files} files": w.round for w in (small, large)}, rounds=rounds)
    for workspace in (small, large):
        workspace.samples = samples
    return Report(
        name="staging_growth",
        question=f"{sizes[0]:,} and {sizes[1]:,} files of 1 kB, the same {len(CHANGED)} changed",
        basis=f"medians of {rounds} interleaved rounds",
        figures=figures(small, large),
        samples=samples,
    )


class Workspace:
    """One size of workspace in a store of its own, and what was measured on it."""

    def __init__(self, home: Path, files: int) -> None:
        say(f"  preparing {files:,} files of {FILE_BYTES:,} bytes")
        self.files = files
        self.random = random.Random(1)
        self.samples: Samples = {}
        self.uploaded = 0
        tree = apart(home.parent)
        for number in range(files):
            path = tree / f"d{number // FILES_PER_DIRECTORY:03}" / f"f{number:06}.bin"
            if number % FILES_PER_DIRECTORY == 0:
                path.parent.mkdir(parents=True)
            path.write_bytes(self.random.randbytes(FILE_BYTES))
        self.shipped = Shipped(home)
        self.shipped.fill(tree)

    def round(self) -> dict[str, float]:
        watch = Watch(str(self.shipped.settings.attempts))
        sys.addaudithook(watch.opened)
        bare: list[float] = []
        self.shipped.attempt(lambda files: bare.append(self._change(files)), watch)
        read = sorted(
            Path(path).relative_to(watch.workspace).parts[2:] for path in watch.files_read
        )
        if not {"/".join(parts) for parts in read} <= set(CHANGED):
            raise BenchmarkError(f"files that the body had not touched were read: {read[:3]}")
        self.uploaded = watch.uploaded
        values = {
            "scan": watch.scan,
            "stage": watch.stage,
            "stat pass": bare[0],
            "bytes read": float(watch.read_anywhere),
            "files read": float(len(read)),
        }
        return {f"{self.files} files, {name}": value for name, value in values.items()}

    def _change(self, files: Path) -> float:
        """The task's body; it also times a bare stat pass."""
        for path in CHANGED:
            (files / path).write_bytes(self.random.randbytes(FILE_BYTES))
        return bare_stat_pass(files)

    def median(self, name: str) -> float:
        return median(self.samples[f"{self.files} files, {name}"])


def figures(small: Workspace, large: Workspace) -> tuple[Figure, ...]:
    more = large.files - small.files
    both = [(w.median("scan"), w.median("stage")) for w in (small, large)]
    growth = sum(both[1]) - sum(both[0])
    explained = large.median("scan") - small.median("scan")
    bare = large.median("stat pass") - small.median("stat pass")
    return (
        Figure(
            "scan + stage + commit",
            f"{small.files:,}: {1e3 * sum(both[0]):.0f} ms, "
            f"{large.files:,}: {1e3 * sum(both[1]):.0f} ms",
            growth,
        ),
        Figure(
            "the stat pass, files/s",
            f"{large.files / large.median('scan'):,.0f} (bare scandir and stat: "
            f"{large.files / large.median('stat pass'):,.0f})",
            large.files / large.median("scan"),
        ),
        at_most(
            "growth that isn't the stat pass",
            f"grew {1e3 * growth:.0f} ms for {more:,} files, the pass {1e3 * explained:.0f} ms "
            f"(a bare one {1e3 * bare:.0f} ms), the rest {1e3 * (growth - explained):.0f} ms",
            (growth - explained) / growth,
            UNEXPLAINED_PART,
            " of it",
        ),
        Figure(
            "the pass, times a bare one",
            "its own part: names checked, stats compared, paths sorted; no bytes read",
            large.median("scan") / large.median("stat pass"),
        ),
        at_most(
            "times the bytes of files read",
            f"{small.median('files read'):.0f} and {large.median('files read'):.0f} files opened, "
            f"{FILE_BYTES:,} bytes each",
            large.median("files read") / small.median("files read"),
            BYTES_READ_GROWTH,
            "x",
        ),
        Figure(
            "bytes read in all, the store's database included",
            f"{small.median('bytes read') / 1e3:.0f} kB and "
            f"{large.median('bytes read') / 1e3:.0f} kB",
            large.median("bytes read") - small.median("bytes read"),
        ),
        Figure(
            "bytes uploaded", f"{small.uploaded:,} and {large.uploaded:,}", float(large.uploaded)
        ),
    )


def bytes_read_so_far() -> int:
    """By this process and through system calls, from the cache or not."""
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("rchar:") + 1])


def bare_stat_pass(root: Path) -> float:
    """Seconds to list every directory and stat every file, and nothing else."""
    began = time.perf_counter()
    pending = [str(root)]
    while pending:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)
    return time.perf_counter() - began
