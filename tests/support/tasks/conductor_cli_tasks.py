"""Tasks for what people type: one that waits and one that fails, where a test wants it.

The names are this test process's own, which may share its Conductor.
"""

import os
import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TaskFailed, WorkspaceSpec, pipeline, task

WHO = os.environ.get("PYTEST_XDIST_WORKER", "alone")


def controls(retries):
    return TaskControls(retry=RetryPolicy(count=retries, delay_seconds=2))


class Params(BaseModel):
    text: str = "hello"
    gate: str | None = None


class Written(BaseModel):
    letters: int


@task(
    name=f"{WHO}.cli.write",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(),
    controls=controls(0),
)
def write(files: Path, params: Params) -> Written:
    """Write a text down, once there is a file ``gate``."""
    print(f"writing {params.text}")  # noqa: T201 - what a task prints goes to its log
    while params.gate and not Path(params.gate).exists():
        time.sleep(0.02)
    (files / "text.txt").write_text(params.text)
    return Written(letters=len(params.text))


class Occasion(BaseModel):
    marker: str


@task(name=f"{WHO}.cli.stumble", owner_email="tests@example.com", controls=controls(1))
def stumble(params: Occasion) -> Written:
    """Fail wherever nothing has failed yet; then take longer than who follows looks away."""
    if not Path(params.marker).exists():
        Path(params.marker).touch()
        raise TaskFailed("stumbled")
    time.sleep(2.5)
    return Written(letters=0)


@task(
    name=f"{WHO}.cli.tally",
    owner_email="tests@example.com",
    workspace=WorkspaceSpec(),
    controls=controls(0),
)
def tally(files: Path, params: Written) -> Written:
    (files / "tally.txt").write_text(f"{params.letters}\n")
    return params


writing = pipeline(f"{WHO}_cli_writing", [write, tally.with_params(letters=write.result.letters)])
stumbling = pipeline(f"{WHO}_cli_stumbling", [stumble])
