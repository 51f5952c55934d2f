"""The crash matrix on a real lakeFS: the worker killed at every failpoint, and lakeFS itself.

`make test` kills the worker at every failpoint; `make test-slow` has the rest.
"""

import threading
import time
from contextlib import ExitStack, closing

import pytest
from support import one_attempt
from support.crash_matrix import (
    WAYS,
    CrashMatrix,
    MatrixWorker,
    each_failpoint,
)

from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.model.attempt import TaskStatus
from perago.model.commit import ACTIONS_PREFIX
from perago.model.run import RunStatus
from perago.operations.leftover_gc import ORPHAN_SECONDS, collect_leftovers
from perago.ports.environment import FAILPOINTS
from perago.settings import load_settings
from perago.testing import InjectedFaults
from perago.testing.conformance.store import StoreBench
from perago.wiring import open_queue, open_store


class Worker(MatrixWorker):
    """At work in a repository of its own, with a fence in it or not."""

    def __init__(self, server, level, root, run_fork):
        self._environment = {
            **server.settings,
            "PERAGO_HOME": str(root / "home"),
            "PERAGO_STORE": "lakefs",
            "PERAGO_PUBLISH_FENCE": level,
        }
        self._run_fork = run_fork
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._environment.items():
                patch.setenv(name, value)
            settings = load_settings()
        store = open_store(settings)
        outside = root / "outside"
        outside.mkdir()
        self._bench = StoreBench(store, outside)
        super().__init__(settings, store, open_queue(settings), self._bench.repository)
        fence = {FENCE_KEY: FENCE_ACTION} if level == "cas" else {}
        self._bench.commit(self.branch, one_attempt.BEFORE | fence)

    def close(self):
        self.store.close()
        self.queue.close()

    def run_process(self, *, body, failpoints):
        return self._run_fork(self._environment | {"PERAGO_FAILPOINTS": failpoints, "BODY": body})

    def tree(self):
        found = self._bench.content(self.branch)
        return {key: data for key, data in found.items() if not key.startswith(ACTIONS_PREFIX)}


@pytest.fixture
def worker_on(run_fork, tmp_path):
    """Makes a worker on a server, where a way begins."""
    with ExitStack() as stack:

        def worker_on(server, way, level):
            worker = stack.enter_context(closing(Worker(server, level, tmp_path, run_fork)))
            worker.start()
            if way.abandoned:
                worker.killed_at("publish.done", body="change")
                assert worker.head.is_only_child_of(worker.input)
            return worker

        yield worker_on


class TestFenced(CrashMatrix):
    @pytest.fixture
    def worker(self, way, worker_on, lakefs_server):
        return worker_on(lakefs_server, way, "cas")


@each_failpoint(of="publish.")
@pytest.mark.slow
def test_without_the_fence_too(way, failpoint, worker_on, lakefs_server):
    worker_on(lakefs_server, way, "soft").assert_recovers_from_death(at=failpoint, on=way)


# --- lakeFS itself killed ------------------------------------------------------------------------

UNCLEAR = ("store_unavailable: ", "answer_lost: ", "publish_unknown: ")
"""How the reason of an attempt begins that had no server to go on with."""


def needs_the_server_after(failpoint, way):
    """Whether the attempt's result still depends on it; that its branch stays doesn't count."""
    settled = "publish.sent" if "publish.sent" in way.failpoints else "publish.head_read"
    return FAILPOINTS.index(failpoint) < FAILPOINTS.index(settled)


def each_moment(*, of=""):
    """Every failpoint on every way, where each place is tried once before the ways part.

    What a body did shows after it, and the head it meets only where publishing begins.
    """
    parting = {"merge": 0, "no-op": FAILPOINTS.index("body.done")}
    publishing = FAILPOINTS.index("publish.head_read")

    def marks(way, failpoint):
        is_own = FAILPOINTS.index(failpoint) >= parting.get(way.name, publishing)
        return () if is_own else pytest.mark.matrix

    return pytest.mark.parametrize(
        ("way", "failpoint"),
        [
            pytest.param(way, name, id=f"{way}-{name}", marks=marks(way, name))
            for way in WAYS
            for name in way.failpoints
            if name.startswith(of)
        ],
    )


def recover(worker, way):
    """A retry, and `perago gc` for a branch that a dead server couldn't be asked to delete."""
    if worker.record.status is not RunStatus.COMPLETED:
        assert worker.run(body=way.body)
    later = time.time() + 2 * ORPHAN_SECONDS
    collect_leftovers(worker.store, worker.settings.attempts, now=later)
    worker.assert_ended_well(way)


@pytest.mark.usefixtures("hasty")
@pytest.mark.slow
class TestServerKilled:
    def killed_then_restarted(self, worker, way, failpoint, server):
        before = len(worker.record.attempts)
        worker.run(body=way.body, failpoints=InjectedFaults({failpoint: lambda _: server.kill()}))
        assert not server.is_running
        server.restart()

        attempt = worker.record.attempts[before - 1]
        if needs_the_server_after(failpoint, way):
            assert attempt.status is TaskStatus.FAILED
            assert attempt.reason.startswith(UNCLEAR)
        else:
            assert attempt.status is TaskStatus.COMPLETED
        recover(worker, way)

    @each_moment()
    def test_the_attempt_fails_clearly_and_a_retry_ends_well(
        self, way, failpoint, worker_on, mortal_server
    ):
        worker = worker_on(mortal_server, way, "cas")
        self.killed_then_restarted(worker, way, failpoint, mortal_server)

    @each_moment(of="publish.")
    def test_without_the_fence_too(self, way, failpoint, worker_on, mortal_server):
        worker = worker_on(mortal_server, way, "soft")
        self.killed_then_restarted(worker, way, failpoint, mortal_server)

    @pytest.mark.parametrize("level", ["cas", "soft"])
    @pytest.mark.parametrize("milliseconds", [0, 10, 25])
    @pytest.mark.parametrize("way", [way for way in WAYS if way.body == "change"], ids=str)
    def test_killed_while_it_moves_the_branch(
        self, way, milliseconds, level, worker_on, mortal_server
    ):
        worker = worker_on(mortal_server, way, level)
        death = threading.Timer(milliseconds / 1000, mortal_server.kill)
        faults = InjectedFaults({"publish.decided": lambda _: death.start()})
        worker.run(body=way.body, failpoints=faults)
        death.join()
        mortal_server.restart()
        recover(worker, way)
