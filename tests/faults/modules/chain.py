"""Three steps: one that changes and adds, one that changes nothing, one that deletes and adds.

With HOLD=<step>:<file> in the environment, that step's body makes the file and then hangs; with
HOLD=child:<file> the first body starts a child process that hangs, and then does the same.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, pipeline, task

AT_ONCE = TaskControls(retry=RetryPolicy(count=3, delay_seconds=0))


class Params(BaseModel):
    times: int = 1


class Counted(BaseModel):
    letters: int


def hold(step: str) -> None:
    name, _, flag = os.environ.get("HOLD", "").partition(":")
    if name == "child":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if name in (step, "child"):
        Path(flag).touch()
        time.sleep(600)


@task(name="chain.grow", owner_email="d@example.com", workspace=WorkspaceSpec(), controls=AT_ONCE)
def grow(ws: Path, params: Params) -> Counted:
    hold("grow")
    (ws / "a.txt").write_text("a grew\n" * params.times)
    (ws / "folder" / "new.txt").write_text("new\n")
    return Counted(letters=len("a grew\n") * params.times)


@task(name="chain.look", owner_email="d@example.com", workspace=WorkspaceSpec(), controls=AT_ONCE)
def look(ws: Path, params: Params) -> Counted:
    hold("look")
    return Counted(letters=len((ws / "a.txt").read_text()) * params.times)


@task(name="chain.prune", owner_email="d@example.com", workspace=WorkspaceSpec(), controls=AT_ONCE)
def prune(ws: Path, params: Params) -> Counted:
    hold("prune")
    (ws / "b.txt").unlink()
    (ws / "folder" / "count.txt").write_text(f"{params.times}\n")
    return Counted(letters=0)


chain = pipeline(
    "chain", [grow.with_params(times=3), look, prune.with_params(times=look.result.letters)]
)
