"""A worker that takes one attempt, runs it and is gone: ``python one_attempt.py``.

BODY in the environment says what the task's body does: ``change`` or ``nothing``.
"""

import os
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, pipeline, task
from perago.flow.lifecycle import run_attempt
from perago.settings import Settings, load_settings
from perago.wiring import build_runtime


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


def run_one(settings: Settings) -> bool:
    """Whether there was an attempt to run, and its report was accepted."""
    runtime = build_runtime(settings)
    deliveries = runtime.orchestrator.poll([work.name], worker_id=str(os.getpid()))
    return any(run_attempt(delivery, work, runtime).accepted for delivery in deliveries)


if __name__ == "__main__":
    raise SystemExit(0 if run_one(load_settings()) else 1)
