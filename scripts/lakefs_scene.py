"""One case of the protocol: a target branch of its own, attempts on it, and what was verified."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakefs_witness import Witness
from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, pipeline, task
from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.lakefs.store import LakeFSStore
from perago.adapters.local.engine import LocalEngine
from perago.flow.lifecycle import run_attempt
from perago.flow.runtime import Runtime
from perago.model.attempt import STAGING_PREFIX
from perago.model.outcome import AttemptOutcome
from perago.model.workspace import WorkspaceRef
from perago.operations.fence_install import install_fence
from perago.testing import InjectedFaults, ManualClock, RecordingJournal

LEASE_SECONDS = 600
BEFORE = {"keep.txt": b"kept", "edit.txt": b"before", "drop.txt": b"dropped"}
AFTER = {"keep.txt": b"kept", "edit.txt": b"after", "new.txt": b"new"}


def edit(files: Path) -> None:
    """Make AFTER of BEFORE."""
    (files / "edit.txt").write_bytes(AFTER["edit.txt"])
    (files / "new.txt").write_bytes(AFTER["new.txt"])
    (files / "drop.txt").unlink()


def leave(files: Path) -> None:
    """Read, and change nothing."""
    (files / "keep.txt").read_bytes()


class Nothing(BaseModel):
    """No params, and no result."""


def _at_failpoint(act: Callable[[], object]) -> Callable[[str], None]:
    def acting(_name: str) -> None:
        act()

    return acting


class WorkerDied(BaseException):
    """Ends an attempt as a kill would: nothing of ours catches it."""


@dataclass
class Place:
    """A repository, what all cases start from in it, and what has to be gone afterwards."""

    store: LakeFSStore
    witness: Witness
    home: Path
    is_own: bool
    name: str = field(default_factory=lambda: f"perago-smoke-{secrets.token_hex(4)}")
    runs: list[str] = field(default_factory=list)
    runs_actions: bool = False

    @property
    def repository(self) -> str:
        return self.witness.repository

    def prepare(self) -> None:
        """Two branches to start from: with the files a task works on, and with the fence too."""
        if self.is_own:
            self.store.create_repository(self.repository)
        plain, fenced = self.base("soft"), self.base("cas")
        self.witness.create_branch(plain, self.witness.default_branch())
        self.witness.write(
            plain, {f"{self.name}/{key}": content for key, content in BEFORE.items()}
        )
        self.witness.create_branch(fenced, plain)
        install_fence(self.store, self.repository, fenced)
        self.runs_actions = self.store.probe_fence(self.repository, fenced)

    def base(self, level: str) -> str:
        return f"{self.name}-base-{level}"

    def ours(self) -> list[str]:
        """Every branch there is because of this script."""
        staging = [f"{STAGING_PREFIX}{run}" for run in self.runs]
        return [name for prefix in (self.name, *staging) for name in self.witness.branches(prefix)]

    def clean_up(self) -> list[str]:
        """Delete all that is ours; the branches that are still there after that."""
        for branch in self.ours():
            self.witness.delete_branch(branch)
        left = self.ours()
        if self.is_own:
            self.witness.delete_repository()
        return left


class Scene:
    """One case: a target branch of its own, a run of one task on it, and what was verified."""

    def __init__(self, place: Place, case: str, level: str) -> None:
        self.place, self.witness, self.level = place, place.witness, level
        self.branch = f"{place.name}-{case}-{level}"
        self.verified: list[str] = []
        self.failed: list[str] = []
        self.journal = RecordingJournal()
        self._clock = ManualClock(time.time())
        self._queue = EmbeddedQueue(place.home / f"{self.branch}.db", clock=self._clock)
        self._body: Callable[[Path], None] = leave
        self._task = self._declare()
        self.witness.create_branch(self.branch, place.base(level))

    def close(self) -> None:
        self._queue.close()

    def verify(self, statement: str, holds: object) -> None:
        (self.verified if holds else self.failed).append(statement)

    @property
    def head(self) -> str:
        return self.witness.head(self.branch)

    @property
    def files(self) -> dict[str, bytes]:
        return self.witness.files(self.branch, self.place.name)

    def somebody_writes(self) -> str:
        key = f"{self.place.name}/foreign.txt"
        return self.witness.write(self.branch, {key: secrets.token_bytes(8)})

    def start(self) -> str:
        """Schedule the run from the branch's head: A."""
        ref = self.head
        workspace = WorkspaceRef(
            repository=self.place.repository, branch=self.branch, ref_type="commit", ref=ref
        )
        self.place.runs.append(self._queue.start(pipeline("smoke", [self._task]).plan(), workspace))
        return ref

    def attempt(
        self, body: Callable[[Path], None], **faults: Callable[[], object]
    ) -> AttemptOutcome:
        """The next attempt; ``faults`` happen at failpoints, with ``__`` for their dot."""
        self._body = body
        (delivery,) = self._queue.poll([self._task.name], worker_id="smoke")
        at = {name.replace("__", "."): _at_failpoint(act) for name, act in faults.items()}
        runtime = Runtime(
            store=self.place.store,
            orchestrator=self._queue,
            engines={"local": LocalEngine()},
            clock=self._clock,
            journal=self.journal,
            workspace_root=self.place.home / "attempts",
            fence="cas" if self.level == "cas" else "soft",
            failpoints=InjectedFaults(at),
        )
        return run_attempt(delivery, self._task, runtime)

    def abandon(self) -> str:
        """An attempt that publishes and dies before it can say so; its lease runs out. H."""

        def die() -> None:
            raise WorkerDied

        with suppress(WorkerDied):
            self.attempt(edit, report__ready=die)
        self._clock.advance(LEASE_SECONDS + 1)
        self.journal.events.clear()
        return self.head

    def verify_refused(
        self, outcome: AttemptOutcome, head: str, *, by: str, what: str = "the attempt"
    ) -> None:
        """Nothing was published or reported as published, and the reason has the words ``by``."""
        reason, status = str(outcome.report.reason), outcome.report.status
        refused = status == "FAILED" and reason.startswith("publish_fence") and by in reason
        said = f"by the publish fence, “{by}”" if refused else f"“{reason}”"
        self.verify(f"{what} is {status} {said}", refused)
        self.verify("it has no workspace output", outcome.report.output == {})
        self.verify(f"the branch's head is as it was, {head[:12]}", self.head == head)

    def _declare(self) -> Any:
        @task(
            name="smoke.step",
            owner_email="smoke@example.com",
            workspace=WorkspaceSpec(prefix=self.place.name),
            controls=TaskControls(
                retry=RetryPolicy(count=3, delay_seconds=0),
                timeout=TimeoutPolicy(policy="RETRY", response_seconds=LEASE_SECONDS),
            ),
        )
        def step(files: Path, params: Nothing) -> Nothing:
            self._body(files)
            return params

        return step
