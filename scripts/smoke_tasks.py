"""What the smoke script has workers do: local, no-op, read-only and failing tasks.

All names begin with $PERAGO_SMOKE_NAME, so that nothing on the servers can be mistaken for another
run's; the workspace is the directory of that name.
"""

from __future__ import annotations

import os
from pathlib import Path

from pydantic import BaseModel

from perago import (
    RetryPolicy,
    TaskControls,
    TaskFailed,
    TaskTerminalError,
    TimeoutPolicy,
    WorkspaceSpec,
    pipeline,
    require_file,
    task,
)

NAME = os.environ["PERAGO_SMOKE_NAME"]
OWNER = "smoke@example.com"
CONTROLS = TaskControls(
    retry=RetryPolicy(count=2, delay_seconds=1), timeout=TimeoutPolicy(response_seconds=120)
)


class Params(BaseModel):
    """``marker`` is a file outside the workspace that remembers a first attempt."""

    marker: str | None = None
    words: str = "said by the task"


class Seen(BaseModel):
    """How many files there were, when all was done."""

    files: int


def seen(files: Path) -> Seen:
    return Seen(files=sum(path.is_file() and path.name[0] != "." for path in files.rglob("*")))


@task(
    name=f"{NAME}.write", owner_email=OWNER, workspace=WorkspaceSpec(prefix=NAME), controls=CONTROLS
)
def write(files: Path, params: Params) -> Seen:
    """Change a file, add one and remove one."""
    print(params.words)
    (files / "edit.txt").write_bytes(b"after")
    (files / "new.txt").write_bytes(b"new")
    (files / "drop.txt").unlink()
    return seen(files)


@task(
    name=f"{NAME}.leave", owner_email=OWNER, workspace=WorkspaceSpec(prefix=NAME), controls=CONTROLS
)
def leave(files: Path, params: Params) -> Seen:
    """Change nothing, though it might."""
    del params
    return seen(files)


@task(
    name=f"{NAME}.look",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=NAME, read_only=True),
    controls=CONTROLS,
)
def look(files: Path, params: Params) -> Seen:
    """Read, and leave a file behind that is not published."""
    del params
    found = seen(files)
    (files / "scratch.txt").write_text("discarded")
    return found


@task(name=f"{NAME}.think", owner_email=OWNER, controls=CONTROLS)
def think(params: Params) -> Seen:
    """Work without a workspace."""
    return Seen(files=len(params.words))


@task(
    name=f"{NAME}.stumble",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=NAME),
    controls=CONTROLS,
)
def stumble(files: Path, params: Params) -> Seen:
    """Fail in the middle of it the first time, and do it the second."""
    (files / "late.txt").write_text("late")
    marker = Path(str(params.marker))
    if not marker.exists():
        marker.touch()
        raise TaskFailed("stumbled, as always the first time")
    return seen(files)


@task(
    name=f"{NAME}.refuse",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=NAME),
    controls=CONTROLS,
)
def refuse(files: Path, params: Params) -> Seen:
    """Give up after having changed files."""
    del params
    (files / "never.txt").write_text("never published")
    raise TaskTerminalError("gave up for good")


@task(
    name=f"{NAME}.guarded",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=NAME, pre=[require_file("nowhere.txt")]),
    controls=CONTROLS,
)
def guarded(files: Path, params: Params) -> Seen:
    """Never run: what it requires is nowhere."""
    del params
    return seen(files)


good = pipeline(f"{NAME}_good", [write, leave, look, think, stumble])
bad = pipeline(f"{NAME}_bad", [write, refuse, leave])
barred = pipeline(f"{NAME}_barred", [guarded, leave])
PIPELINES = (good, bad, barred)
