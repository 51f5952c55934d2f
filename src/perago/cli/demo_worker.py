"""A worker of the demo's own: ``perago start`` as a child that ends with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.cli.options import place_to_name
from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perago.model.run import RunPlan
    from perago.ports.runs import SharedRuns
    from perago.settings import Settings

_START = "from perago.cli.main import main; main()"
_READY_SECONDS = 120.0  # Spark has to start
_GRACE_SECONDS = 20.0
_TAIL_BYTES = 2000


@contextmanager
def working(settings: Settings, plan: RunPlan, runs: SharedRuns) -> Iterator[None]:
    """Serve a plan's modules, one task at a time, until the end of the block.

    The worker is asking for the plan's tasks when the block begins; what it says goes to a log.
    Raises RuntimeConfigError, with the end of that, if it doesn't get so far.
    """
    modules = dict.fromkeys(step.module for step in plan.steps)
    task_names = list(dict.fromkeys(step.task_name for step in plan.steps))
    settings.home.mkdir(parents=True, exist_ok=True)
    log = settings.home.absolute() / "worker.log"
    began = time.time()
    with log.open("ab") as output:
        size_before = log.stat().st_size
        process = subprocess.Popen(
            [sys.executable, "-c", _START, "start", *modules, "-j", "1", *place_to_name()],
            env=_environment(settings.failpoints),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for who watches
        )
    try:
        while not _is_asking(runs, task_names, began):
            _assert_alive(process, log, size_before, began)
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_asking(runs: SharedRuns, task_names: Sequence[str], since: float) -> bool:
    polls = runs.last_polls(task_names)
    return all(name in polls and polls[name][1] >= since for name in task_names)


def _assert_alive(process: subprocess.Popen[bytes], log: Path, start: int, began: float) -> None:
    if process.poll() is None and time.time() - began < _READY_SECONDS:
        return
    with log.open("rb") as said:
        said.seek(max(start, log.stat().st_size - _TAIL_BYTES))
        end = said.read().decode(errors="replace").strip()
    what = "isn't ready" if process.returncode is None else f"ended with {process.returncode}"
    raise RuntimeConfigError(f"the demo's worker {what}: {end}", fix=f"see {log}")


def _environment(failpoints: str) -> dict[str, str]:
    """Ours, but for where it works: below the demo's home, for elsewhere another worker may be."""
    kept = {name: value for name, value in os.environ.items() if name != "PERAGO_WORKSPACE_ROOT"}
    return kept | {"PERAGO_FAILPOINTS": failpoints}
