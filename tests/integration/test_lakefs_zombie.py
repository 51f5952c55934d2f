"""A worker stopped in mid-publication, whose task was done by a retry when it comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support import one_attempt

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.adapters.local.engine import LocalEngine
from perago.flow.lifecycle import run_attempt
from perago.flow.runtime import Runtime
from perago.model.attempt import STAGING_PREFIX, TaskStatus
from perago.model.outcome import PublishPath
from perago.model.workspace import WorkspaceRef
from perago.operations.fence_install import install_fence
from perago.ports.environment import SilentJournal, SystemClock
from perago.settings import Settings
from perago.testing import ManualClock
from perago.testing.conformance.store import StoreBench
from perago.wiring import open_queue, open_store

PROCESS_SECONDS = 60
TESTS = Path(__file__).parents[1]
WORKER = """
from perago.flow.lifecycle import run_attempt
from perago.settings import load_settings
from perago.wiring import build_runtime
from support.one_attempt import work

runtime = build_runtime(load_settings())
(delivery,) = runtime.orchestrator.poll([work.name], worker_id="late")
print(run_attempt(delivery, work, runtime).report.reason)
"""


class Workplace:
    """A run of one step in a repository of its own, and a process that stops on its way."""

    def __init__(self, server, directory, level):
        self.settings = Settings(
            _env_file=None,
            home=directory / "home",
            store="lakefs",
            publish_fence=level,
            lakefs_storage_namespace=server.storage_namespace,
            **server.settings,
        )
        self.store, self.queue = open_store(self.settings), open_queue(self.settings)
        bench = StoreBench(self.store, directory)
        bench.commit("main", one_attempt.BEFORE)
        self.repository = bench.repository
        if level == "cas":
            install_fence(self.store, self.repository, "main")
        self.input = self.head.id
        workspace = WorkspaceRef(
            repository=self.repository, branch="main", ref_type="commit", ref=self.input
        )
        self.queue.start(one_attempt.matrix.plan({}), workspace)
        self._bench, self._server, self._level = bench, server, level
        self._process = None

    @property
    def head(self):
        return self.store.head(self.repository, "main")

    @property
    def history(self):
        return [commit.id for commit in self.store.history(self.repository, "main")]

    def abandon(self):
        """Leave a commit on the branch that no task was accepted with."""
        return self._bench.commit("main", {"data/abandoned": b"?"}).id

    def stop_worker_at(self, failpoint):
        """Start a worker that takes the attempt, and wait until it has stopped there."""
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER],
            env={**os.environ, **self._server.settings}
            | {
                "PYTHONPATH": str(TESTS),
                "PERAGO_HOME": str(self.settings.home),
                "PERAGO_STORE": "lakefs",
                "PERAGO_PUBLISH_FENCE": self._level,
                "PERAGO_FAILPOINTS": f"{failpoint}=stop",
                "BODY": "change",
            },
            stdout=subprocess.PIPE,
            text=True,
        )
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended instead, with status {status}"

    def retry(self):
        """The next attempt, made right here by a clock that has the first one's lease run out."""
        lease = one_attempt.work.controls.timeout.response_seconds
        (path,) = self.settings.home.rglob("*queue.db")
        queue = EmbeddedQueue(path, clock=ManualClock(time.time() + lease + 1))
        runtime = Runtime(
            store=self.store,
            orchestrator=queue,
            engines={"local": LocalEngine()},
            clock=SystemClock(),
            journal=SilentJournal(),
            workspace_root=self.settings.attempts,
            fence=self._level,
        )
        (delivery,) = queue.poll([one_attempt.work.name], worker_id="another")
        outcome = run_attempt(delivery, one_attempt.work, runtime)
        queue.close()
        return outcome

    def continue_worker(self):
        """Let it go on to its end; what it reports then."""
        self._process.send_signal(signal.SIGCONT)
        said, _ = self._process.communicate(timeout=PROCESS_SECONDS)
        return said.strip()

    def assert_cleaned_up(self):
        """Nothing private is left, and the retry is the one that counts."""
        (run,) = self.queue.runs()
        assert [r.status for r in run.attempts] == [TaskStatus.TIMED_OUT, TaskStatus.COMPLETED]
        assert list(self.store.branches(self.repository, prefix=STAGING_PREFIX)) == []
        assert list(self.settings.attempts.iterdir()) == []

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self.store.close()
        self.queue.close()


@pytest.fixture
def workplace(request, lakefs_server, tmp_path, monkeypatch):
    monkeypatch.setenv("BODY", "change")
    opened = Workplace(lakefs_server, tmp_path, request.param)
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("workplace", "failpoint", "refusal"),
    [
        ("cas", "staging.uploaded", "stale_attempt"),
        ("cas", "fence2.passed", "stale_attempt"),
        ("cas", "publish.decided", "publish_fence"),
        ("soft", "staging.uploaded", "stale_attempt"),
        ("soft", "fence2.passed", "stale_attempt"),
    ],
    indirect=["workplace"],
)
def test_it_is_refused_and_the_branch_keeps_the_retry(workplace, failpoint, refusal):
    workplace.stop_worker_at(failpoint)
    outcome = workplace.retry()
    assert outcome.accepted
    assert outcome.published.path is PublishPath.MERGED

    assert workplace.continue_worker().startswith(f"{refusal}: ")
    assert workplace.history[:2] == [outcome.published.ref, workplace.input]
    workplace.assert_cleaned_up()


@pytest.mark.parametrize("workplace", ["soft"], indirect=True)
def test_without_the_fence_a_merge_it_had_decided_on_lands_but_is_no_success(workplace):
    workplace.stop_worker_at("publish.decided")
    outcome = workplace.retry()
    assert outcome.accepted

    assert workplace.continue_worker().startswith("wrong_landing: the merge landed as ")
    assert workplace.history[1:3] == [outcome.published.ref, workplace.input]
    workplace.assert_cleaned_up()


@pytest.mark.parametrize(
    ("failpoint", "refusal"),
    [("publish.head_read", "stale_attempt"), ("publish.decided", "publish_fence")],
)
@pytest.mark.parametrize("workplace", ["cas", "soft"], indirect=True)
def test_a_reset_it_was_about_to_send_does_not_take_back_what_was_accepted_since(
    workplace, failpoint, refusal
):
    abandoned = workplace.abandon()
    workplace.stop_worker_at(failpoint)
    outcome = workplace.retry()
    assert outcome.accepted
    assert (outcome.published.path, outcome.published.replaced) == (
        PublishPath.REPLACED,
        abandoned,
    )

    assert workplace.continue_worker().startswith(f"{refusal}: ")
    assert workplace.history[:2] == [outcome.published.ref, workplace.input]
    workplace.assert_cleaned_up()
