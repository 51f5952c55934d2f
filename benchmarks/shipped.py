"""Perago as it ships, in this process: a durable store, the embedded queue, the real clock."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from measuring import BenchmarkError, spread, stopwatch
from pydantic import BaseModel

from perago import WorkspaceSpec, pipeline, task
from perago.adapters.embedded.store import EmbeddedStore
from perago.flow.lifecycle import run_attempt
from perago.model.workspace import WorkspaceRef
from perago.operations.import_export import import_directory
from perago.settings import load_settings
from perago.wiring import build_runtime, open_queue, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from perago.declare.task import AnyTask
    from perago.flow.runtime import Runtime
    from perago.model.attempt import Delivery
    from perago.model.commit import Commit
    from perago.ports.environment import Journal

REPOSITORY = "bench"
BRANCH = "main"


class Nothing(BaseModel):
    pass


class Shipped:
    """One home directory with one repository, made from a directory's files.

    ``chosen`` are settings that differ from the ones it ships with.
    """

    def __init__(self, home: Path, *, repository: str = REPOSITORY, **chosen: object) -> None:
        self.repository = repository
        self.settings = load_settings(home=home, **chosen)
        spread(self.settings.attempts)
        self.store = open_store(self.settings)
        self.queue = open_queue(self.settings)

    def close(self) -> None:
        self.store.close()
        self.queue.close()

    def fill(self, directory: Path) -> None:
        """Import the files, without waiting for the disk at each: this isn't measured."""
        hasty = EmbeddedStore(self.store.root, durable=False)
        import_directory(hasty, repository=self.repository, branch=BRANCH, directory=directory)
        hasty.close()
        os.sync()

    @property
    def head(self) -> Commit:
        return self.store.head(self.repository, BRANCH)

    def attempt(
        self,
        change: Callable[[Path], None],
        journal: Journal | None = None,
        runtime: Runtime | None = None,
    ) -> float:
        """Seconds of one whole attempt, cleanup included, whose body is ``change``.

        Raises BenchmarkError unless it completed and its commit is the branch's head, on the input.
        """
        changing = task_that(change)
        before = self.head.id
        delivery = self.deliver(changing, before)
        runtime = runtime or build_runtime(self.settings, journal)
        with stopwatch() as taken:
            outcome = run_attempt(delivery, changing, runtime)
        if not outcome.accepted or not outcome.report.completed:
            raise BenchmarkError(f"the measured attempt failed: {outcome.report.reason}")
        if not self.head.is_only_child_of(before):
            raise BenchmarkError(f"the measured attempt published nothing on {before}")
        return taken[0]

    def deliver(self, changing: AnyTask, ref: str, *, branch: str = BRANCH) -> Delivery:
        """An attempt that is due, on the commit ``ref``."""
        where = WorkspaceRef(repository=self.repository, branch=branch, ref_type="commit", ref=ref)
        self.queue.start(pipeline("bench", [changing]).plan(), where)
        (delivery,) = self.queue.poll([changing.name], worker_id="bench")
        return delivery


def task_that(change: Callable[[Path], None]) -> AnyTask:
    @task(name="bench.change", owner_email="bench@example.com", workspace=WorkspaceSpec())
    def changing(files: Path, params: Nothing) -> Nothing:
        change(files)
        return params

    return changing
