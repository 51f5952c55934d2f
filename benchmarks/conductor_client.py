"""What one request to Conductor costs with our own client, and with the official one."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from conductor_rig import environment_of_anybody, rig
from lakefs_peer import ensure_peer
from measuring import MIB, Figure, Report, interleaved, median, say, spread_of

if TYPE_CHECKING:
    from conductor_rig import Rig
    from measuring import Samples, Scale

DRIVER = Path(__file__).with_name("conductor_client_driver.py")
QUANTITIES = {
    "processor_ms": ("processor time of reading a task", "ms", 1.0),
    "clock_ms": ("reading a task, by the clock", "ms", 1.0),
    "import_seconds": ("importing it", "s", 1.0),
    "resident_bytes": ("memory it holds after a first request", "MiB", MIB),
}


def measure(scratch: Path, scale: Scale) -> Report:
    pythons = {"own": sys.executable}
    if scale.peer:
        pythons["official"] = str(ensure_peer(say))  # the peer brings it
    environment = environment_of_anybody(scratch / "compiled")
    rounds = scale.rounds_or(5)
    with rig(scratch) as bench:
        arguments = [
            bench.conductor.address,
            task_to_read(bench),
            str(scale.pick(quick=50, full=500)),
        ]
        sides = {
            who: partial(ask, environment, python, who, *arguments)
            for who, python in pythons.items()
        }
        samples = interleaved(sides, rounds=rounds)
    return Report(
        name="conductor_client",
        question="the client of Conductor: our own, and the official one",
        basis=f"medians of {rounds} interleaved rounds, each a new process",
        figures=tuple(figure(what, samples) for what in QUANTITIES),
        samples=samples,
    )


def task_to_read(bench: Rig) -> str:
    side = bench.side("none", "unserved")
    (workflow,) = bench.conductor.queue(side, [{"params": {}}])
    return str(bench.conductor.ask("GET", f"/workflow/{workflow}")["tasks"][0]["taskId"])


def ask(environment: dict[str, str], python: str, who: str, *arguments: str) -> dict[str, float]:
    command = [python, str(DRIVER), who, *arguments]
    said = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    return {f"{who}, {what}": value for what, value in json.loads(said.stdout).items()}


def figure(what: str, samples: Samples) -> Figure:
    words, unit, size = QUANTITIES[what]
    own, official = ([v / size for v in samples[f"{who}, {what}"]] for who in ("own", "official"))
    return Figure(
        f"{words}: official, times our own",
        f"{spread_of(own, '')}, official {spread_of(official, '')} {unit}",
        median(official) / median(own),
    )
