"""How the benchmarks measure and what they hand back: samples, figures, bars, machine facts."""

from __future__ import annotations

import math
import os
import platform
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Samples = dict[str, list[float]]
    Side = Callable[[], float | Mapping[str, float]]
    """Runs once and returns its seconds, or several values by the name of their series."""

MIB = 1 << 20
_MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. ``quick`` proves that a benchmark works; its figures prove nothing.

    ``rows`` is the size of tables, where there are any; what is made up for them is kept in
    ``workdir``, if there is one. Without ``peer``, perago 0.6.1 is neither installed nor run.
    """

    quick: bool = False
    rounds: int | None = None
    rows: int | None = None
    workdir: Path | None = None
    peer: bool = True

    def pick(self, *, quick: int, full: int) -> int:
        return quick if self.quick else full

    def rounds_or(self, default: int) -> int:
        return self.rounds or (2 if self.quick else default)


class BenchmarkError(Exception):
    """A side did not do what was to be measured, or took too long."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of a benchmark, such as one side in one round, that has no value, and why."""

    what: str
    reason: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of the table. Without a bar it is there for information.

    ``value`` is not a number if a side it needs has no sample.
    """

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
    figures: Sequence[Figure]
    samples: Mapping[str, list[float]] = field(default_factory=dict)
    failures: Sequence[Failure] = ()


def at_least(what: str, measured: str, value: float, bar: float, unit: str) -> Figure:
    passed = None if math.isnan(value) else value >= bar
    return Figure(what, measured, value, f">= {bar:g}{unit}", passed)


def at_most(what: str, measured: str, value: float, bar: float, unit: str) -> Figure:
    passed = None if math.isnan(value) else value <= bar
    return Figure(what, measured, value, f"<= {bar:g}{unit}", passed)


# --- failures -------------------------------------------------------------------------------------


class Failures:
    """What went wrong in the benchmark that runs now, and how long one of its parts may take.

    There is one benchmark at a time in a process, so there is one of these, ``failures``.
    """

    def __init__(self) -> None:
        self.seconds = 1800.0
        self._found: list[Failure] = []

    def take(self) -> tuple[Failure, ...]:
        """All failures since the last call."""
        found, self._found = tuple(self._found), []
        return found

    @contextmanager
    def kept(self, what: str) -> Iterator[None]:
        """Run one part. An error in it, or its time-out, is recorded and ends that part only."""
        try:
            with _time_limit(self.seconds):
                yield
        except Exception as error:  # noqa: BLE001 - whatever a side does, others are measured
            self.add(what, error)

    def add(self, what: str, error: Exception) -> None:
        reason = str(error) or type(error).__name__
        say(f"  FAILED: {what}: {reason}")
        self._found.append(Failure(what, reason))


failures = Failures()


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raises BenchmarkError in the block after that long. Main thread only.

    Within another one, it replaces that one's limit.
    """

    def interrupt(*_: object) -> None:
        raise BenchmarkError(f"took longer than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def figures_of(what: str, make: Callable[[], Sequence[Figure]]) -> Sequence[Figure]:
    """The figures of one part of a benchmark; none if it fails."""
    made: list[Figure] = []
    with failures.kept(what):
        made.extend(make())
    return made


# --- samples --------------------------------------------------------------------------------------


def interleaved(sides: Mapping[str, Side], *, rounds: int, warm_ups: int = 1) -> Samples:
    """What every side took in every round, B A A B, after one round that isn't counted.

    A side times itself, so that its preparation and its checks stay out of the figure. The disk
    is quiet when it starts. A side that fails in a round has no sample of it.
    """
    names = list(sides)
    samples: Samples = defaultdict(list)
    for number in range(1 - warm_ups, rounds + 1):
        shown = []
        # The side that goes first may find the machine in another state than the next one.
        for name in names if number % 2 == 0 else names[::-1]:
            settle()
            with failures.kept(f"{name}, round {number}" if number > 0 else f"{name}, warm-up"):
                taken = sides[name]()
                values = {name: taken} if isinstance(taken, float) else dict(taken)
                if number > 0:
                    for series, value in values.items():
                        samples[series].append(value)
                shown.append(f"{name} {next(iter(values.values())):.2f} s")
        if number > 0 and shown:
            say(f"  round {number} of {rounds}: {', '.join(shown)}")
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
    return statistics.median(values) if values else math.nan


def spread_of(values: list[float], unit: str = " s", digits: int = 2) -> str:
    """The median, with the least and the most."""
    if not values:
        return "no sample"
    least, middle, most = (f"{v:.{digits}f}" for v in (min(values), median(values), max(values)))
    return f"{middle}{unit} ({least}-{most})"


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
