"""How the benchmarks measure and what they hand back: samples, figures, bars, machine facts."""

from __future__ import annotations

import os
import platform
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Samples = dict[str, list[float]]

MIB = 1 << 20
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. ``quick`` proves that a benchmark works; its figures prove nothing.

    ``rows`` is the size of tables, where there are any; what is made up for them is kept in
    ``workdir``, if there is one.
    """

    quick: bool = False
    rounds: int | None = None
    rows: int | None = None
    workdir: Path | None = None

    def pick(self, *, quick: int, full: int) -> int:
        return quick if self.quick else full

    def rounds_or(self, default: int) -> int:
        return self.rounds or (2 if self.quick else default)


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. Without a bar it is there for information."""

    what: str
    measured: str
    value: float
    bar: str = ""
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What a benchmark found out; ``samples`` are seconds unless a name says otherwise."""

    name: str
    question: str
    basis: str
    figures: tuple[Figure, ...]
    samples: Mapping[str, list[float]] = field(default_factory=dict)


def at_least(what: str, measured: str, value: float, bar: float, unit: str) -> Figure:
    return Figure(what, measured, value, f">= {bar:g}{unit}", value >= bar)


def at_most(what: str, measured: str, value: float, bar: float, unit: str) -> Figure:
    return Figure(what, measured, value, f"<= {bar:g}{unit}", value <= bar)


def interleaved(
    sides: Mapping[str, Callable[[], float]], *, rounds: int, warm_ups: int = 1
) -> Samples:
    """Seconds of every side in every round, B A A B, after one round that isn't counted.

    A side times itself, so that its preparation and its checks stay out of the figure. The disk
    is quiet when it starts: what the side before it left to be written is its own affair.
    """
    names = list(sides)
    samples: Samples = {name: [] for name in names}
    for number in range(1 - warm_ups, rounds + 1):
        # Whoever goes first may find the machine in another state than who follows.
        for name in names if number % 2 == 0 else names[::-1]:
            settle()
            seconds = sides[name]()
            if number > 0:
                samples[name].append(seconds)
        if number > 0:
            told = ", ".join(f"{name} {taken[-1]:.2f} s" for name, taken in samples.items())
            say(f"  round {number} of {rounds}: {told}")
    return samples


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """The block's seconds, as the one item of the list."""
    taken: list[float] = []
    began = time.perf_counter()
    yield taken
    taken.append(time.perf_counter() - began)


def settle() -> None:
    """Have everything that is waiting to be written written now."""
    os.sync()


def median(values: list[float]) -> float:
    return statistics.median(values)


def spread_of(values: list[float]) -> str:
    """The median, with the least and the most."""
    return f"{median(values):.2f} s ({min(values):.2f}-{max(values):.2f})"


def peak_mib(process: int | str = "self") -> float:
    """Of that program: ru_maxrss would also count the parent this process was forked from."""
    status = Path(f"/proc/{process}/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) / 1024


def say(line: str) -> None:
    """To people who wait; standard output belongs to the results."""
    print(line, file=sys.stderr, flush=True)


def spread(directory: Path) -> Path:
    """Make a directory whose subdirectories the filesystem keeps apart by their names, if it can.

    An ext4 without a journal doesn't give out an inode for a minute after it was freed, and looks
    through all of those when a file is made beside them: there, what one round removes would slow
    down the next twentyfold. Apart, they don't meet. Elsewhere this changes nothing.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if chattr := shutil.which("chattr"):
        subprocess.run([chattr, "+T", str(directory)], capture_output=True, check=False)
    return directory


def apart(scratch: Path) -> Path:
    """A path for a new directory, with a name, and so a place on disk, that no other round has."""
    return scratch / secrets.token_hex(8)


@contextmanager
def scratch(parent: Path | None) -> Iterator[Path]:
    """A directory on a real disk that is gone afterwards. Raises SystemExit for one in memory."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perago-bench-", dir=parent) as name:
        if filesystem_of(Path(name)) in _MEMORY_FILESYSTEMS:
            raise SystemExit(f"{name} is in memory: name a directory on a disk with --dir")
        yield spread(Path(name))


def filesystem_of(path: Path) -> str:
    asked = subprocess.run(
        ["df", "--output=fstype", str(path)],  # noqa: S607 - whichever df the machine has
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.split()[-1]


def machine_facts(directory: Path) -> dict[str, str | int]:
    git = shutil.which("git")
    version = [git, "--version"] if git else ["true"]
    return {
        "cores": os.cpu_count() or 0,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "filesystem": filesystem_of(directory),
        "load at the start": f"{os.getloadavg()[0]:.1f}",
        "git": subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip(),
    }
