"""A task for crash matrices, and a process that runs attempts at it, each in a fork of its own.

``python -m support.one_attempt`` imports everything first: lakeFS's client alone takes more than a
second, too long for a process that a failpoint kills at once. BODY in the environment says what the
task's body does: ``change`` or ``nothing``.
"""

from __future__ import annotations

import json
import os
import sys
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
    """Answer each line on stdin, an environment as JSON, with how an attempt in it ended."""
    import lakefs_sdk.client
    import obstore.store

    from perago.adapters.lakefs import cache, store

    del lakefs_sdk, obstore, cache, store  # imported once, for all forks
    for line in sys.stdin:
        print(_fork_attempt(json.loads(line)), flush=True)  # noqa: T201 - that is its protocol


def _fork_attempt(environment: dict[str, str]) -> int:
    """How a process ends that runs an attempt in this environment: negative if it was killed."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os.environ.update(environment)
    raise SystemExit(0 if run_one(load_settings()) else 1)


if __name__ == "__main__":
    main()
