"""What must become of a run whose worker dies, wherever it does, as a pytest class to subclass.

::

    class TestMyStoreAfterACrash(CrashMatrix):
        @pytest.fixture
        def worker(self, way: Way) -> Iterator[MatrixWorker]: ...

A worker is killed at every failpoint, on every way through the publish table; then comes a retry.
Whatever the moment, the run ends as if nothing had happened: the same tree, one commit on the
input commit or none, and no private branch or directory left.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from perago.errors import ExecutorLostError
from perago.flow.attempt_directory import collect, leftovers
from perago.flow.report import failed
from perago.model.attempt import STAGING_PREFIX, TaskStatus
from perago.model.run import RunStatus
from perago.model.workspace import WorkspaceRef
from perago.ports.environment import FAILPOINTS
from perago.testing.bench import delivery_of
from support.one_attempt import AFTER, BEFORE, matrix, run_one

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.model.commit import Commit
    from perago.model.run import RunRecord
    from perago.ports.environment import Failpoints
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store
    from perago.settings import Settings

_STAGING = frozenset(
    {
        "staging.branch_created",
        "staging.uploaded",
        "staging.committed",
        "fence2.passed",
        "staging.deleted",
    }
)
_MOVING = frozenset({"publish.cleared", "publish.sent", "publish.verified"})
_AFTER_THE_REPORT = frozenset({"report.sent", "directory.removed"})


@dataclass(frozen=True, slots=True)
class Way:
    """One way through the publish table. ``abandoned``: from a head that a lost attempt left."""

    name: str
    body: str
    abandoned: bool
    not_reached: frozenset[str]

    def __str__(self) -> str:
        return self.name

    @property
    def tree(self) -> Mapping[str, bytes]:
        return AFTER if self.body == "change" else BEFORE

    @property
    def failpoints(self) -> list[str]:
        return [name for name in FAILPOINTS if name not in self.not_reached]


WAYS = (
    Way("merge", "change", abandoned=False, not_reached=frozenset()),
    Way("replacement", "change", abandoned=True, not_reached=frozenset()),
    Way("no-op", "nothing", abandoned=False, not_reached=_STAGING | _MOVING),
    Way("no-op-back", "nothing", abandoned=True, not_reached=_STAGING),
)
each_way = pytest.mark.parametrize("way", WAYS, ids=str)


def each_failpoint(*, of: str = "") -> pytest.MarkDecorator:
    """Every failpoint whose name begins so, on every way that comes past it."""
    return pytest.mark.parametrize(
        ("way", "failpoint"),
        [
            pytest.param(way, failpoint, id=f"{way}-{failpoint}")
            for way in WAYS
            for failpoint in way.failpoints
            if failpoint.startswith(of)
        ],
    )


class MatrixWorker(ABC):
    """A run of one step, executions of it here or in a process, and what its supervisor does."""

    def __init__(
        self, settings: Settings, store: Store, queue: Runs, repository: str, branch: str = "main"
    ) -> None:
        self.settings = settings
        self.store = store
        self.queue = queue
        self.repository = repository
        self.branch = branch

    @abstractmethod
    def run_process(self, *, body: str, failpoints: str) -> int:
        """Run an attempt in a process of its own, to its end; its exit code, negative if killed."""

    @abstractmethod
    def tree(self) -> Mapping[str, bytes]:
        """What the branch holds."""

    def start(self) -> None:
        """Schedule the run at the branch's head."""
        workspace = WorkspaceRef(
            repository=self.repository, branch=self.branch, ref_type="commit", ref=self.head.id
        )
        self.queue.start(matrix.plan({}), workspace)

    def killed_at(self, failpoint: str, *, body: str) -> None:
        """Run an attempt in a process that dies there, and do what its supervisor does then."""
        assert self.run_process(body=body, failpoints=f"{failpoint}=kill") == -signal.SIGKILL
        for leftover in leftovers(self.settings.attempts):
            collect(self.store, leftover)
        last = delivery_of(self.record.attempts[-1])
        self.queue.report(last, failed(ExecutorLostError(f"killed at {failpoint}")))

    def run(self, *, body: str, failpoints: Failpoints | None = None) -> bool:
        """Run the next attempt right here; whether there was one and its report was accepted."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BODY", body)
            return run_one(self.settings, failpoints=failpoints)

    @property
    def record(self) -> RunRecord:
        (run,) = self.queue.runs()
        return run

    @property
    def input(self) -> str:
        assert self.record.workspace
        return self.record.workspace.ref

    @property
    def head(self) -> Commit:
        return self.store.head(self.repository, self.branch)

    def assert_recovers_from_death(self, *, at: str, on: Way) -> None:
        """Killed there, a retry ends the run well, unless it had been accepted already."""
        self.killed_at(at, body=on.body)
        was_accepted = at in _AFTER_THE_REPORT
        assert (self.record.status is RunStatus.COMPLETED) == was_accepted

        assert self.run(body=on.body) != was_accepted
        self.assert_ended_well(on)

    def assert_ended_well(self, way: Way) -> None:
        assert self.record.status is RunStatus.COMPLETED, self.record.attempts
        assert self.tree() == way.tree
        head = self.head
        assert self.record.output_ref == head.id
        if way.body == "change":
            assert head.is_only_child_of(self.input)
        else:
            assert head.id == self.input
        self.assert_nothing_left()

    def assert_nothing_left(self) -> None:
        """No private branch, no private directory, no uncommitted object."""
        assert list(self.store.branches(self.repository, prefix=STAGING_PREFIX)) == []
        assert list(self.settings.attempts.glob("*")) == []
        assert self.store.uncommitted(self.repository, self.branch) == []


class CrashMatrix:
    """The fixture ``worker`` stands where ``way`` begins: its run started, a head left if so."""

    @each_failpoint()
    def test_killed_then_retried(self, way: Way, failpoint: str, worker: MatrixWorker) -> None:
        worker.assert_recovers_from_death(at=failpoint, on=way)

    @each_way
    def test_the_matrix_leaves_out_only_what_is_never_reached(
        self, way: Way, worker: MatrixWorker
    ) -> None:
        faults = ",".join(f"{name}=kill" for name in way.not_reached)
        assert worker.run_process(body=way.body, failpoints=faults) == 0
        worker.assert_ended_well(way)

    @each_way
    def test_killed_at_two_failpoints_in_a_row(self, way: Way, worker: MatrixWorker) -> None:
        worker.killed_at("publish.done", body=way.body)
        worker.killed_at("report.ready", body=way.body)
        assert worker.run(body=way.body)
        worker.assert_ended_well(way)
        statuses = [record.status for record in worker.record.attempts]
        assert statuses == [TaskStatus.FAILED] * (len(statuses) - 1) + [TaskStatus.COMPLETED]
