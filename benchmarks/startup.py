"""How long a person waits before the command line does anything."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import Figure, Report, apart, at_most, interleaved, stopwatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from measuring import Scale

HELP_SECONDS = 0.35
WHERE_PYDANTIC_TAKES = 0.12

PIPELINE = """
from pydantic import BaseModel
from perago import pipeline, task

class Nothing(BaseModel):
    pass

@task(name="idle", owner_email="bench@example.com")
def idle(params: Nothing) -> Nothing:
    return params

nothing = pipeline("nothing", [idle])
"""


def measure(scratch: Path, scale: Scale) -> Report:
    (scratch / "idling.py").write_text(PIPELINE)
    perago = str(Path(sys.executable).with_name("perago"))
    rounds = scale.rounds_or(15)
    sides = {
        "import pydantic": timed(scratch, sys.executable, "-c", "import pydantic"),
        "perago --help": timed(scratch, perago, "--help"),
        "perago runs": timed(scratch, perago, "runs"),
        "perago run": timed(scratch, perago, "run", "idling:nothing", "--json"),
    }
    samples = interleaved(sides, rounds=rounds)
    best = {name: min(samples[name], default=math.nan) for name in sides}
    return Report(
        name="startup",
        question="what the command line takes to start",
        basis=f"best of {rounds} interleaved rounds",
        figures=(
            at_most(
                "perago --help, times import pydantic",
                f"{best['perago --help']:.3f} s, import pydantic {best['import pydantic']:.3f} s",
                best["perago --help"] / best["import pydantic"],
                round(HELP_SECONDS / WHERE_PYDANTIC_TAKES, 1),
                "x",
            ),
            *(
                Figure(what, f"{best[name]:.3f} s", best[name])
                for what, name in (
                    ("perago runs, in an empty home", "perago runs"),
                    ("perago run, one task that does nothing", "perago run"),
                )
            ),
        ),
        samples=samples,
    )


def timed(scratch: Path, *command: str) -> Callable[[], float]:
    """Each time with a home of its own, which is empty."""

    def once() -> float:
        environment = os.environ | {"PERAGO_HOME": str(apart(scratch))}
        with stopwatch() as taken:
            subprocess.run(
                command,
                check=True,
                cwd=scratch,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return taken[0]

    return once
