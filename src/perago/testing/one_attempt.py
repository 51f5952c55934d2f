"""A worker that takes one attempt, runs it and is gone: ``python -m perago.testing.one_attempt``.

BODY in the environment says what the task's body does: ``change`` or ``nothing``.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, pipeline, task
from perago.flow.lifecycle import run_attempt
from perago.settings import Settings, load_settings
from perago.wiring import build_runtime

if TYPE_CHECKING:
    from perago.ports.environment import Failpoints

BEFORE = {
    "a.txt": b"a.txt as it was\n",
    "b.txt": b"b.txt as it was\n",
    "folder/c.txt": b"folder/c.txt as it was\n",
}
"""What the task expects to find."""

AFTER = {
    "a.txt": b"changed\n",
    "added.txt": b"added\n",
    "folder/c.txt": b"folder/c.txt as it was\n",
}
"""What it makes of it where its body changes something."""


class Nothing(BaseModel):
    pass


@task(
    name="matrix.work",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=RetryPolicy(count=3, delay_seconds=0)),
)
def work(ws: Path, params: Nothing) -> Nothing:
    if os.environ["BODY"] == "change":
        (ws / "a.txt").write_text("changed\n")
        (ws / "added.txt").write_text("added\n")
        (ws / "b.txt").unlink()
    return params


matrix = pipeline("matrix", [work])


def run_one(settings: Settings, *, failpoints: Failpoints | None = None) -> bool:
    """Whether there was an attempt to run, and its report was accepted."""
    runtime = build_runtime(settings)
    if failpoints is not None:
        runtime = replace(runtime, failpoints=failpoints)
    # The ports know nothing of closing: what they stand for may be a process's for good.
    with closing(cast("Any", runtime.store)), closing(cast("Any", runtime.orchestrator)) as queue:
        deliveries = queue.poll([work.name], worker_id=str(os.getpid()))
        return any(run_attempt(delivery, work, runtime).accepted for delivery in deliveries)


def main() -> None:
    """Run one by what the environment says, and end this process with what it came to."""
    raise SystemExit(0 if run_one(load_settings()) else 1)


if __name__ == "__main__":
    main()
