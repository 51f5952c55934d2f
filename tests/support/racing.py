"""Writers that break the promise to take turns: all read the same head, then all publish.

Every writer has a queue of its own, as if each belonged to an orchestrator that knows nothing of
the others, and runs whole attempts. None of them gets past reading the target's head before all
have.
"""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pydantic import BaseModel

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.local.engine import LocalEngine
from perago.declare.pipeline import pipeline
from perago.declare.task import task
from perago.declare.workspace import WorkspaceSpec
from perago.errors import PublishFenceError, WrongLandingError
from perago.flow.lifecycle import run_attempt
from perago.flow.runtime import Runtime
from perago.model.controls import RetryPolicy, TaskControls
from perago.model.workspace import WorkspaceRef
from perago.ports.environment import SilentJournal, SystemClock
from perago.ports.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perago.model.commit import Commit
    from perago.model.outcome import AttemptOutcome

_PATIENCE_SECONDS = 60.0


class Writing(BaseModel):
    name: str
    text: str


@task(
    name="race.write",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="race"),
    controls=TaskControls(retry=RetryPolicy(count=0)),
)
def write(files: Path, params: Writing) -> Writing:
    """Write one file; no other writer's, so that a merge meets no conflict."""
    (files / params.name).write_text(params.text)
    return params


class StartingLine:
    """Failpoints that hold every attempt until all of them have read the target's head."""

    def __init__(self, writers: int) -> None:
        self._barrier = threading.Barrier(writers, timeout=_PATIENCE_SECONDS)

    def hit(self, name: str) -> None:
        if name == "publish.head_read":
            self._barrier.wait()


class ClosableStore(Store, Protocol):
    """A store that holds something open."""

    def close(self) -> None:
        """Let go of it."""
        ...


class Writer:
    """One of the racers, with a store and a queue of its own below ``root``."""

    def __init__(self, root: Path, name: str, store: ClosableStore, line: StartingLine) -> None:
        self.name = name
        self.store = store
        self.queue = EmbeddedQueue(root / f"{name}.db", durable=False)
        self.runtime = Runtime(
            store=store,
            orchestrator=self.queue,
            engines={"local": LocalEngine()},
            clock=SystemClock(),
            journal=SilentJournal(),
            workspace_root=root / "attempts",
            failpoints=line,
        )

    def attempt(self, workspace: WorkspaceRef, text: str) -> AttemptOutcome:
        """Start a run of the one task, and make its only attempt."""
        step = write.with_params(name=self.name, text=text)
        self.queue.start(pipeline("race", [step]).plan(), workspace)
        (delivery,) = self.queue.poll([write.name], worker_id=self.name)
        return run_attempt(delivery, write, self.runtime)

    def close(self) -> None:
        self.queue.close()
        self.store.close()


@dataclass(slots=True)
class Counts:
    """What became of all the merges of a race. ``silent`` is what must never be.

    ``other`` has the reasons of attempts that ended in none of these ways.
    """

    rounds: int = 0
    merges: int = 0
    landed: int = 0
    refused: int = 0
    on_wrong_parent: int = 0
    detected: int = 0
    silent: int = 0
    other: Counter[str] = field(default_factory=Counter)

    def add(
        self, before: str, landed: Sequence[Commit], outcomes: Sequence[AttemptOutcome]
    ) -> None:
        """Judge one round by the branch: ``landed`` is all that is on it since ``before``."""
        self.rounds += 1
        self.merges += len(outcomes)
        self.landed += len(landed)
        on_branch = {commit.metadata.get("perago.execution_id"): commit for commit in landed}
        for outcome in outcomes:
            commit = on_branch.get(outcome.execution_id)
            code = (outcome.report.reason or "").partition(":")[0]
            if commit is None:
                self.refused += code == PublishFenceError.code
            elif not commit.is_only_child_of(before):
                self.on_wrong_parent += 1
                self.detected += code == WrongLandingError.code
                self.silent += outcome.report.completed
            settled = outcome.report.completed and commit is not None
            if not settled and code not in (PublishFenceError.code, WrongLandingError.code):
                self.other[outcome.report.reason or "completed, and not on the branch"] += 1

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds, {self.merges} merges sent: {self.landed} landed, "
            f"{self.refused} refused; {self.on_wrong_parent} on a wrong parent, "
            f"{self.detected} of those reported as failed, {self.silent} as a success"
        )


def race(
    open_store: Callable[[], ClosableStore],
    root: Path,
    repository: str,
    branches: Sequence[str],
    *,
    writers: int,
    rounds: int,
) -> Counts:
    """That many rounds on every branch, each from the head that the last one left.

    The branches' races go on at the same time: most of a round is waiting for the server.
    """

    def race_on(branch: str) -> Counts:
        line = StartingLine(writers)
        with ExitStack() as opened:
            racers = [
                opened.enter_context(closing(Writer(root / branch, f"{n}.txt", open_store(), line)))
                for n in range(writers)
            ]
            return _rounds(racers, repository, branch, rounds)

    with ThreadPoolExecutor(len(branches)) as pool:
        return sum(pool.map(race_on, branches), Counts())


def _rounds(racers: Sequence[Writer], repository: str, branch: str, rounds: int) -> Counts:
    counts, judge = Counts(), racers[0].store
    with ThreadPoolExecutor(len(racers)) as pool:
        for number in range(rounds):
            before = judge.head(repository, branch).id
            workspace = WorkspaceRef(
                repository=repository, branch=branch, ref_type="commit", ref=before
            )
            going = [pool.submit(one.attempt, workspace, f"round {number}") for one in racers]
            outcomes = [each.result() for each in going]
            counts.add(before, _since(judge, workspace), outcomes)
    return counts


def _since(store: Store, workspace: WorkspaceRef) -> list[Commit]:
    """What is on the branch on top of the input commit."""
    history = store.history(workspace.repository, workspace.branch)
    return list(takewhile(lambda commit: commit.id != workspace.ref, history))
