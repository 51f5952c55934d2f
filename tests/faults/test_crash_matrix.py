"""A real process killed at every failpoint, on every way through the publish table; then a retry.

Whatever the moment, the run ends as if nothing had happened: the same tree, one commit on the
input commit or none, no private branch or directory left, and a store without damage.
"""

from __future__ import annotations

import signal
import sys
from dataclasses import dataclass

import pytest

from perago.errors import ExecutorLostError
from perago.flow.recover import collect, leftovers
from perago.flow.report import failed
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus
from perago.ports.failpoints import FAILPOINTS

_STAGING = {
    "staging.branch_created",
    "staging.uploaded",
    "staging.committed",
    "fence2.passed",
    "staging.deleted",
}
_MOVING = {"publish.sent", "publish.verified"}

SEEDED = {
    "a.txt": b"a.txt as it was\n",
    "b.txt": b"b.txt as it was\n",
    "folder/c.txt": b"folder/c.txt as it was\n",
}
CHANGED = {
    "a.txt": b"changed\n",
    "added.txt": b"added\n",
    "folder/c.txt": b"folder/c.txt as it was\n",
}


@dataclass(frozen=True)
class Way:
    """One way through the publish table."""

    name: str
    body: str
    abandoned: bool
    not_reached: frozenset[str]

    @property
    def tree(self):
        return CHANGED if self.body == "change" else SEEDED

    @property
    def failpoints(self):
        return [name for name in FAILPOINTS if name not in self.not_reached]


WAYS = [
    Way("merge", "change", abandoned=False, not_reached=frozenset()),
    Way("replacement", "change", abandoned=True, not_reached=frozenset()),
    Way("no-op", "nothing", abandoned=False, not_reached=frozenset(_STAGING | _MOVING)),
    Way("no-op-back", "nothing", abandoned=True, not_reached=frozenset(_STAGING)),
]


@pytest.fixture(scope="module")
def one_attempt(load_module):
    return load_module("one_attempt")


@pytest.fixture(scope="module")
def homes(projects, one_attempt, tmp_path_factory):
    """How things stand before the attempt that will be killed; True: with an abandoned head."""
    made = {}
    for abandoned in (False, True):
        directory = tmp_path_factory.mktemp("before")
        with projects(directory) as project:
            seed = project.seed()
            project.queue.start(one_attempt.matrix.plan({}), project.workspace(seed.id))
            if abandoned:
                Worker(project, one_attempt).killed_at("publish.done", body="change")
                assert project.store.head("chain", "main").is_only_child_of(seed.id)
            made[abandoned] = project.home
    return made


@pytest.fixture
def worker(way, homes, projects, one_attempt, tmp_path):
    with projects(tmp_path, home=homes[way.abandoned]) as project:
        yield Worker(project, one_attempt)


class Worker:
    """A run of one step, executions of it here or in a process, and what its supervisor does."""

    def __init__(self, project, one_attempt):
        self.project = project
        self._one_attempt = one_attempt

    def process(self, body, failpoints):
        return self.project.spawn(
            [sys.executable, self._one_attempt.__file__], failpoints=failpoints, BODY=body
        )

    def killed_at(self, failpoint, *, body):
        """Run an attempt in a process that dies there, and do what its supervisor does then."""
        process = self.process(body, f"{failpoint}=kill")
        assert process.wait(60) == -signal.SIGKILL, self.project.output_of(process)
        for leftover in leftovers(self.project.settings.attempts):
            collect(self.project.store, leftover)
        last = self.record.attempts[-1].attempt
        self.project.queue.report(last, failed(ExecutorLostError(f"killed at {failpoint}")))

    def retry(self, *, body):
        """Run the next attempt right here; whether there was one and it was accepted."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("BODY", body)
            return self._one_attempt.run_one(self.project.settings)

    @property
    def record(self):
        return self.project.only_run

    @property
    def input(self):
        return self.record.workspace.ref


def assert_ended_well(worker, way):
    project, record = worker.project, worker.record
    assert record.status is RunStatus.COMPLETED
    assert project.tree() == way.tree
    head = project.store.head("chain", "main")
    assert record.output_ref == head.id
    if way.tree is CHANGED:
        assert head.is_only_child_of(worker.input)
    else:
        assert head.id == worker.input
    project.assert_nothing_left()


@pytest.mark.parametrize(
    ("way", "failpoint"),
    [
        pytest.param(way, failpoint, id=f"{way.name}-{failpoint}")
        for way in WAYS
        for failpoint in way.failpoints
    ],
)
def test_killed_then_retried(way, failpoint, worker):
    worker.killed_at(failpoint, body=way.body)
    was_accepted = failpoint in ("report.sent", "directory.removed")
    assert (worker.record.status is RunStatus.COMPLETED) == was_accepted

    assert worker.retry(body=way.body) != was_accepted
    assert_ended_well(worker, way)


@pytest.mark.parametrize("way", [pytest.param(way, id=way.name) for way in WAYS])
def test_the_matrix_leaves_out_only_what_is_never_reached(way, worker):
    faults = ",".join(f"{name}=kill" for name in way.not_reached)
    process = worker.process(way.body, faults)
    assert process.wait(60) == 0, worker.project.output_of(process)
    assert_ended_well(worker, way)


@pytest.mark.parametrize("way", [pytest.param(way, id=way.name) for way in WAYS])
def test_killed_at_two_failpoints_in_a_row(way, worker):
    worker.killed_at("publish.done", body=way.body)
    worker.killed_at("report.ready", body=way.body)
    assert worker.retry(body=way.body)
    assert_ended_well(worker, way)
    statuses = [record.status for record in worker.record.attempts]
    assert statuses == [TaskStatus.FAILED] * (len(statuses) - 1) + [TaskStatus.COMPLETED]
