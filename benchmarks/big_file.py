"""Memory and throughput of an attempt whose workspace is one file larger than most memories."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import MIB, BenchmarkError, Figure, Report, apart, at_most, peak_mib, say, settle
from shipped import Shipped

from perago.testing.bench import RecordingJournal

if TYPE_CHECKING:
    from measuring import Scale

NAME = "big.bin"
APPENDED = MIB
MEMORY_BAR_MIB = 250.0


def measure(scratch: Path, scale: Scale) -> Report:
    size = scale.pick(quick=256, full=2048) * MIB
    say(f"  preparing one file of {size // MIB:,} MiB")
    home = scratch / "big-home"
    source = apart(scratch)
    write_file(source, size)
    Shipped(home).fill(source)
    (source / NAME).unlink()
    settle()
    say("  one attempt on it, in a fresh process")
    ran = subprocess.run(
        [sys.executable, __file__, str(home)], check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(ran.stdout)
    if found["bytes_moved"] != size + APPENDED:
        raise BenchmarkError(f"{found['bytes_moved']} bytes were uploaded, not the whole file")
    return Report(
        name="big_file",
        question=f"one file of {size // MIB:,} MiB that the body appends to",
        basis="one attempt in a fresh process",
        figures=(
            at_most(
                "peak memory, MiB",
                f"{found['peak_mib']:.0f} MiB (before the attempt {found['idle_mib']:.0f} MiB)",
                found["peak_mib"],
                MEMORY_BAR_MIB,
                " MiB",
            ),
            throughput("fetched and verified, MiB/s", size, found["fetch"]),
            throughput("uploaded, on disk, MiB/s", size + APPENDED, found["upload"]),
        ),
        samples={name: [found[name]] for name in ("attempt", "fetch", "upload")},
    )


def throughput(what: str, size: int, seconds: float) -> Figure:
    speed = size / MIB / seconds
    return Figure(what, f"{speed:,.0f} MiB/s, {seconds:.1f} s", speed)


def write_file(directory: Path, size: int) -> None:
    directory.mkdir()
    numbers = random.Random(2)
    with (directory / NAME).open("wb") as file:
        for _ in range(size // MIB):
            file.write(numbers.randbytes(MIB))


def append(files: Path) -> None:
    with (files / NAME).open("ab") as file:
        file.write(random.Random(3).randbytes(APPENDED))


def attempt(home: Path) -> dict[str, float]:
    journal = RecordingJournal()
    shipped = Shipped(home)
    idle = peak_mib()
    seconds = shipped.attempt(append, journal)
    upload = journal.of("stage.upload")
    return {
        "attempt": seconds,
        "fetch": float(str(journal.of("fetch")["seconds"])),
        "upload": float(str(upload["seconds"])),
        "bytes_moved": int(str(upload["bytes_moved"])),
        "idle_mib": idle,
        "peak_mib": peak_mib(),
    }


if __name__ == "__main__":
    print(json.dumps(attempt(Path(sys.argv[1]))))
