"""Everything an attempt needs, in one process: a store, a queue, a clock and a directory.

These are the embedded parts that ship, except that they don't wait for the disk.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import threading
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.embedded.store import EmbeddedStore
from perago.declare.pipeline import pipeline
from perago.flow.lifecycle import run_attempt
from perago.flow.runtime import Runtime
from perago.model.attempt import Delivery, execution_id_of
from perago.model.workspace import WorkspaceRef
from perago.ports.environment import NoFailpoints
from perago.settings import load_settings
from perago.wiring import Engines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.declare.task import AnyTask
    from perago.flow.runtime import RequestedLevel, SingleWriter
    from perago.model.attempt import AttemptStep
    from perago.model.outcome import AttemptOutcome
    from perago.model.progress import Progress
    from perago.model.run import AttemptRecord, RunPlan
    from perago.ports.engine import Engine
    from perago.ports.environment import Failpoints, Lease
    from perago.ports.orchestrator import Orchestrator
    from perago.ports.store import Store


@functools.cache
def trial_engines() -> Mapping[str, Engine]:
    """The engines of all trials. Spark starts when a task needs it, and ends with this process."""
    home = Path(tempfile.gettempdir()) / f"perago-trial-spark-{os.getpid()}"
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return Engines(load_settings(home=home, store="embedded"))


class ManualClock:
    """A :class:`~perago.ports.environment.Clock` that stands still until a test moves it.

    Sleeping on it takes no time and moves it on, so code that waits runs at once.
    """

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self._lock = threading.Lock()
        self._epoch = now
        self._elapsed = 0.0

    def now(self) -> float:
        """Seconds since the epoch, by this clock."""
        return self._epoch + self._elapsed

    def monotonic(self) -> float:
        """Seconds since this clock was made, by this clock."""
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        """Advance by that much and return at once."""
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Let time pass. Raises ValueError for a negative time: clocks don't go back."""
        if seconds < 0:
            raise ValueError(f"a clock can't go back by {-seconds} seconds")
        with self._lock:
            self._elapsed += seconds


class RecordingJournal:
    """Implements :class:`perago.ports.environment.Journal` in memory."""

    def __init__(self) -> None:
        self.events: list[dict[str, object]] = []
        self.tracebacks: list[str] = []
        self.transfers: list[tuple[str, Progress]] = []

    def event(self, step: str, **fields: object) -> None:
        self.events.append({"step": step, **fields})

    def started(self, step: AttemptStep) -> None: ...

    def progress(self, step: AttemptStep, progress: Progress) -> None:
        self.transfers.append((step, progress))

    def failure(self, error: BaseException) -> None:
        self.tracebacks.append("".join(traceback.format_exception(error)))

    def printed(self) -> tuple[str, ...]:
        """The tracebacks alone: in a test, the body prints to the test's own output."""
        return tuple(line for trace in self.tracebacks for line in trace.splitlines())

    def steps(self) -> list[str]:
        return [str(event["step"]) for event in self.events]

    def of(self, step: str) -> dict[str, object]:
        """The last event of that step. Raises KeyError, listing what there is instead."""
        for event in reversed(self.events):
            if event["step"] == step:
                return event
        raise KeyError(f"no {step!r} among {self.steps()}")


@dataclass
class Bench:
    """``semantics="lakefs"`` gives the store lakeFS's weaker branch updates."""

    root: Path
    semantics: Literal["atomic", "lakefs"] = "atomic"
    repository: str = "bench"
    branch: str = "main"
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.store = EmbeddedStore(
            self.root / "store", clock=self.clock, semantics=self.semantics, durable=False
        )
        self.queue = EmbeddedQueue(self.root / "queue.db", clock=self.clock, durable=False)
        self.attempts = self.root / "attempts"
        self.store.create_repository(self.repository, default_branch=self.branch)

    def close(self) -> None:
        self.store.close()
        self.queue.close()

    # --- the store ------------------------------------------------------------------------------
    @property
    def head(self) -> str:
        return self.store.head(self.repository, self.branch).id

    def write(self, files: Mapping[str, bytes | str | None], *, branch: str | None = None) -> str:
        """Commit files (None removes one) outside of any attempt; returns the new head's id."""
        branch = branch or self.branch
        for key, data in files.items():
            if data is None:
                self.store.delete_objects(self.repository, branch, [key])
            else:
                content = data.encode() if isinstance(data, str) else data
                self.store.put_bytes(self.repository, branch, key, content)
        commit = self.store.commit(self.repository, branch, message="outside", metadata={})
        return commit.id

    def read(self, ref: str | None = None) -> dict[str, bytes]:
        """Every object of a commit, by default the branch's head."""
        at = ref or self.branch
        return {
            entry.key: self.store.read_bytes(self.repository, at, entry.key)
            for entry in self.store.list_objects(self.repository, at)
        }

    def history(self) -> list[str]:
        """Commit ids of the branch, newest first."""
        return [commit.id for commit in self.store.history(self.repository, self.branch)]

    def staging_branches(self) -> list[str]:
        return [
            branch.name
            for branch in self.store.branches(self.repository)
            if execution_id_of(branch.name) is not None
        ]

    def workspace(self, ref: str | None = None) -> WorkspaceRef:
        return WorkspaceRef(
            repository=self.repository,
            branch=self.branch,
            ref_type="commit",
            ref=ref or self.head,
        )

    # --- runs -------------------------------------------------------------------------------------
    def plan(
        self, *tasks: AnyTask, params: Mapping[str, Mapping[str, object]] | None = None
    ) -> RunPlan:
        return pipeline("bench", list(tasks)).plan(params)

    def start(
        self,
        *tasks: AnyTask,
        params: Mapping[str, Mapping[str, object]] | None = None,
        ref: str | None = None,
    ) -> str:
        """Schedule a chain of tasks from ``ref``, by default the branch's head; the run's id."""
        plan = self.plan(*tasks, params=params)
        uses_workspace = any(step.uses_workspace for step in plan.steps)
        return self.queue.start(plan, self.workspace(ref) if uses_workspace else None)

    def poll(self, *tasks: AnyTask, worker_id: str = "worker-1") -> Delivery:
        """The next delivery of any of these tasks. Raises LookupError if none is due."""
        for delivery in self.queue.poll([task.name for task in tasks], worker_id=worker_id):
            return delivery
        raise LookupError(f"nothing is due for {[task.name for task in tasks]}")

    def runtime(
        self,
        *,
        journal: RecordingJournal | None = None,
        failpoints: Failpoints | None = None,
        fence: RequestedLevel = "auto",
        single_writer: SingleWriter = "warn",
        store_patience_seconds: float = 0.0,
        store: Store | None = None,
        orchestrator: Orchestrator | None = None,
    ) -> Runtime:
        return Runtime(
            store=store or self.store,
            orchestrator=orchestrator or self.queue,
            engines=trial_engines(),
            clock=self.clock,
            journal=journal or RecordingJournal(),
            workspace_root=self.attempts,
            fence=fence,
            single_writer=single_writer,
            store_patience_seconds=store_patience_seconds,
            failpoints=failpoints or NoFailpoints(),
        )

    def attempt(
        self, task: AnyTask, runtime: Runtime | None = None, *, lease: Lease | None = None
    ) -> AttemptOutcome:
        """Poll for the task and run that attempt here and now."""
        return run_attempt(self.poll(task), task, runtime or self.runtime(), lease=lease)


def delivery_of(record: AttemptRecord) -> Delivery:
    """An attempt's last delivery, as its worker's supervisor knows it: without a lease."""
    return Delivery(
        attempt=record.attempt,
        input=record.input,
        worker_id=record.worker_id or "",
        response_seconds=0.0,
        poll_count=record.poll_count,
    )
