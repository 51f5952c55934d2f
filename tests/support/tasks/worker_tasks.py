"""Tasks that workers serve here: on short leases, and waiting at a gate where a test wants it.

A gate is a path in a task's params. A body that meets one makes ``<gate>.reached`` and goes on once
there is a file ``<gate>``. The names are this test process's own, which may share its Conductor.
"""

import os
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from perago import (
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TaskTerminalError,
    TimeoutPolicy,
    WorkspaceSpec,
    pipeline,
    task,
)

LEASE_SECONDS = 10
GRACE_SECONDS = 2

AT_ONCE = RetryPolicy(count=5, delay_seconds=0)
LEASED = TaskControls(retry=AT_ONCE, timeout=TimeoutPolicy(response_seconds=LEASE_SECONDS))
ONCE = TaskControls(retry=RetryPolicy(count=0), timeout=TimeoutPolicy(response_seconds=300))
PATIENT = TaskControls(retry=AT_ONCE, timeout=TimeoutPolicy(response_seconds=300))
IMPATIENT = TaskControls(
    retry=AT_ONCE,
    timeout=TimeoutPolicy(response_seconds=60),
    publish_budget=PublishBudget(
        observed_merge_p99_seconds=1,
        safety_margin_seconds=1,
        lakefs_merge_timeout_seconds=5,
        conductor_completion_timeout_seconds=5,
        worker_shutdown_grace_seconds=GRACE_SECONDS,
        heartbeat_interval_seconds=2,
    ),
)
WHO = os.environ.get("PYTEST_XDIST_WORKER", "alone")


def served(name, controls=LEASED, *, workspace=True, **spec):
    """What a task here is declared with."""
    return {
        "name": f"{WHO}.{name}",
        "owner_email": "tests@example.com",
        "workspace": WorkspaceSpec(**spec) if workspace else None,
        "controls": controls,
    }


class Params(BaseModel):
    times: int = 1
    gate: str | None = None
    busy: bool = False


class Counted(BaseModel):
    letters: int


def pass_through(params: Params) -> None:
    """Wait at the gate, where there is one; a busy body does so without a pause."""
    if params.gate is not None:
        Path(f"{params.gate}.reached").touch()
        while not Path(params.gate).exists():
            if not params.busy:
                time.sleep(0.02)


def grown(files: Path, params: Params) -> Counted:
    sys.stdout.write(f"growing {params.times} times\n")
    pass_through(params)
    (files / "a.txt").write_text("a grew\n" * params.times)
    (files / "folder" / "new.txt").write_text("new\n")
    return Counted(letters=len("a grew\n") * params.times)


@task(**served("grow"))
def grow(files: Path, params: Params) -> Counted:
    return grown(files, params)


@task(**served("grow_patiently", PATIENT))
def grow_patiently(files: Path, params: Params) -> Counted:
    return grown(files, params)


@task(**served("grow_impatiently", IMPATIENT))
def grow_impatiently(files: Path, params: Params) -> Counted:
    return grown(files, params)


@task(**served("grow_once", ONCE))
def grow_once(files: Path, params: Params) -> Counted:
    return grown(files, params)


@task(**served("look"))
def look(files: Path, params: Params) -> Counted:
    """Change nothing, though it might."""
    pass_through(params)
    return Counted(letters=len((files / "a.txt").read_text()) * params.times)


@task(**served("read", read_only=True))
def read(files: Path, params: Params) -> Counted:
    (files / "discarded.txt").write_text("?")
    return Counted(letters=len((files / "a.txt").read_text()) * params.times)


@task(**served("count", workspace=False))
def count(params: Params) -> Counted:
    """Work without a workspace."""
    pass_through(params)
    return Counted(letters=params.times)


@task(**served("prune"))
def prune(files: Path, params: Params) -> Counted:
    pass_through(params)
    (files / "b.txt").unlink()
    (files / "folder" / "count.txt").write_text(f"{params.times}\n")
    return Counted(letters=0)


@task(**served("refuse"))
def refuse(files: Path, params: Params) -> Counted:
    (files / "a.txt").write_text("never published\n")
    raise TaskTerminalError(f"refused {params.times} times")


chain = pipeline(
    f"{WHO}_chain",
    [grow.with_params(times=3), look, count, prune.with_params(times=look.result.letters)],
)
refused = pipeline(f"{WHO}_refused", [grow.with_params(times=2), read, refuse, prune])
growing = pipeline(f"{WHO}_growing", [grow])
growing_patiently = pipeline(f"{WHO}_growing_patiently", [grow_patiently])
growing_impatiently = pipeline(f"{WHO}_growing_impatiently", [grow_impatiently])
growing_once = pipeline(f"{WHO}_growing_once", [grow_once])
counting = pipeline(f"{WHO}_counting", [count])
