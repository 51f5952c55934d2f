"""What a Spark task costs beside its Spark jobs, on a worker that has run one before."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from lakefs_rig import lake
from measuring import Figure, Report, at_most, failures, median, say, settle, spread_of
from shipped import Shipped
from spark_rig import events, input_ref, patient, sparked, steps_told

from perago.demo.songs.tasks import clean

if TYPE_CHECKING:
    from measuring import Samples, Scale
    from spark_rig import Attempted

    from perago.settings import Settings

ROWS = 200_000
SECONDS = 1.0
ROUNDS = 5
WORKER = """
from pydantic import BaseModel
from perago import SparkWorkspace, WorkspaceSpec, pipeline, task

class Nothing(BaseModel):
    pass

def writing(name):
    @task(name=name, owner_email="bench@example.com", workspace=WorkspaceSpec())
    def write(ws: SparkWorkspace, params: Nothing) -> Nothing:
        ws.spark.range(1000).write.parquet(ws.output(name))
        return params

    return write

one, two, three, four, five, six = map(writing, ("one", "two", "three", "four", "five", "six"))
several = pipeline("several", [one, two, three, four, five, six])
"""


def measure(scratch: Path, scale: Scale) -> Report:
    rounds = scale.rounds_or(ROUNDS)
    tree = events(scale, scratch, min(scale.rows or ROWS, ROWS))
    shipped = Shipped(scratch / "home")
    shipped.fill(tree)
    done: dict[str, list[Attempted]] = {"embedded": [], "lakeFS": []}
    samples: Samples = {}
    say("  embedded")
    attempts(shipped, rounds, done["embedded"], "embedded")
    with failures.kept("lakeFS"), lake(scratch) as server:
        say("  on lakeFS")
        attempts(server.shipped("overhead", tree), rounds, done["lakeFS"], "lakeFS")
    samples |= {name: [each.outside for each in taken] for name, taken in done.items()}
    say("  a run of six tasks by a worker")
    samples["worker"] = []
    with failures.kept("worker"):
        samples["worker"] = between_reports(scratch)
    logged = {name: steps_told(taken[-1] if taken else None) for name, taken in done.items()}
    words = {
        "embedded": "an attempt at clean, embedded, less its body",
        "lakeFS": "the same on lakeFS",
        "worker": "perago run, embedded: from a task's report to the next one's, less its body",
    }
    return Report(
        name="spark_overhead",
        question="a Spark task that isn't a worker's first: what it costs beside its jobs",
        basis=f"medians of {rounds} attempts after one that isn't counted",
        figures=tuple(figure(words[n], taken, logged.get(n, "")) for n, taken in samples.items()),
        samples=samples,
    )


def figure(what: str, taken: list[float], logged: str) -> Figure:
    return at_most(what, f"{spread_of(taken)}{logged}", median(taken), SECONDS, " s")


def attempts(shipped: Shipped, rounds: int, done: list[Attempted], where: str) -> None:
    """Add so many attempts to those that are ``done``, after one that isn't counted."""
    unchecked, ref = patient(clean, checked=False), input_ref(shipped)
    with sparked(shipped) as here:
        for number in range(rounds + 1):
            settle()
            with failures.kept(f"{where}, round {number}"):
                attempted = here.attempt(unchecked, ref)
                if number > 0:
                    done.append(attempted)


def between_reports(scratch: Path) -> list[float]:
    """Seconds of each task but the first, in a real worker: everything that is not its body."""
    (scratch / "several.py").write_text(WORKER)
    shipped = Shipped(scratch / "worker-home")
    shipped.close()
    perago = str(Path(sys.executable).with_name("perago"))
    home = str(shipped.settings.home)
    ran = subprocess.run(
        [perago, "run", "several:several", "--home", home, "--json"],
        check=True,
        cwd=scratch,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return gaps_of(shipped.settings, json.loads(ran.stdout)["run"])


def gaps_of(settings: Settings, run: str) -> list[float]:
    lines = (settings.logs / run / "events.jsonl").read_text().splitlines()
    logged = [json.loads(line) for line in lines]
    reports = [datetime.fromisoformat(each["at"]) for each in logged if each["step"] == "report"]
    bodies = [each["seconds"] for each in logged if each["step"] == "body"]
    return [
        (after - before).total_seconds() - body
        for (before, after), body in zip(pairwise(reports), bodies[1:], strict=True)
    ]
