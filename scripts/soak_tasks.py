"""The workflow that the soak runs: what each kind of task does, on leases of 15 seconds."""

from __future__ import annotations

import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, pipeline, task

OWNER = "soak@example.com"
LEASE_SECONDS = 15
PREFIX = "soak"
BEFORE = {"keep.txt": b"kept\n", "edit.txt": b"before\n", "drop.txt": b"dropped\n"}

CONTROLS = TaskControls(
    retry=RetryPolicy(count=10, delay_seconds=1),
    timeout=TimeoutPolicy(policy="RETRY", response_seconds=LEASE_SECONDS),
)


class Given(BaseModel):
    text: str
    seconds: float = 0.0


class Closing(BaseModel):
    letters: int


class Counted(BaseModel):
    letters: int


@task(
    name="soak.write",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=PREFIX),
    controls=CONTROLS,
)
def write(files: Path, params: Given) -> Counted:
    """Add a file."""
    (files / "written.txt").write_text(params.text)
    return Counted(letters=len(params.text))


@task(
    name="soak.look",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=PREFIX),
    controls=CONTROLS,
)
def look(files: Path, params: Given) -> Counted:
    """Change nothing, though it might; now and then take longer than the lease."""
    time.sleep(params.seconds)
    return Counted(letters=len((files / "written.txt").read_text()))


@task(name="soak.weigh", owner_email=OWNER, controls=CONTROLS)
def weigh(params: Given) -> Counted:
    """Work without a workspace."""
    return Counted(letters=len(params.text))


@task(
    name="soak.edit",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=PREFIX),
    controls=CONTROLS,
)
def edit(files: Path, params: Given) -> Counted:
    """Append to one file and delete another: done twice, it would show."""
    with (files / "edit.txt").open("a") as file:
        file.write(params.text)
    (files / "drop.txt").unlink()
    return Counted(letters=len(params.text))


@task(
    name="soak.read",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=PREFIX, read_only=True),
    controls=CONTROLS,
)
def read(files: Path, params: Given) -> Counted:
    """Read, and write something that is never to be published."""
    (files / "discarded.txt").write_text(params.text)
    return Counted(letters=len((files / "edit.txt").read_text()))


@task(
    name="soak.close",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix=PREFIX),
    controls=CONTROLS,
)
def close(files: Path, params: Closing) -> Counted:
    """Write down what the task before it found."""
    (files / "letters.txt").write_text(f"{params.letters}\n")
    return Counted(letters=params.letters)


soak = pipeline(
    "soak", [write, look, weigh, edit, read, close.with_params(letters=read.result.letters)]
)

CHANGING = tuple(step.reference for step in soak.steps if step.task in (write, edit, close))
"""The references of the steps that publish a commit each."""


def text_of(number: int) -> str:
    return f"workflow {number}\n"


def given_to(number: int) -> dict[str, dict[str, object]]:
    """The params of one workflow's steps: every tenth outlasts a heartbeat, some of them the lease.

    ``close`` takes its own from the step before it.
    """
    seconds = (LEASE_SECONDS + 3 if number % 40 == 0 else 7) if number % 10 == 0 else 0
    given: dict[str, object] = {"text": text_of(number)}
    of_its_own = {look: {**given, "seconds": seconds}, close: {}}
    return {step.reference: of_its_own.get(step.task, given) for step in soak.steps}


def files_after(number: int) -> dict[str, bytes]:
    """What a branch has in the end if each task's work is there, and there once."""
    text = text_of(number).encode()
    edited = BEFORE["edit.txt"] + text
    return {
        "keep.txt": BEFORE["keep.txt"],
        "edit.txt": edited,
        "written.txt": text,
        "letters.txt": f"{len(edited)}\n".encode(),
    }
