"""The crash matrix on the embedded store: real processes, killed at every failpoint."""

from __future__ import annotations

import pytest
from support.crash_matrix import CrashMatrix, MatrixWorker


class Worker(MatrixWorker):
    """At work in a project of its own."""

    def __init__(self, project, run_fork):
        super().__init__(project.settings, project.store, project.queue, "chain")
        self._project = project
        self._run_fork = run_fork

    def run_process(self, *, body, failpoints):
        return self._run_fork(
            {
                "PERAGO_HOME": str(self._project.home),
                "PERAGO_FAILPOINTS": failpoints,
                "BODY": body,
            }
        )

    def tree(self):
        return self._project.tree()

    def assert_nothing_left(self):
        super().assert_nothing_left()
        assert self.store.verify().clean


@pytest.fixture(scope="module")
def homes(projects, run_fork, tmp_path_factory):
    """How things stand before the attempt that will be killed; True: with an abandoned head."""
    made = {}
    for abandoned in (False, True):
        with projects(tmp_path_factory.mktemp("before")) as project:
            seed = project.seed()
            worker = Worker(project, run_fork)
            worker.start()
            if abandoned:
                worker.killed_at("publish.done", body="change")
                assert worker.head.is_only_child_of(seed.id)
            made[abandoned] = project.home
    return made


class TestEmbedded(CrashMatrix):
    @pytest.fixture
    def worker(self, way, homes, projects, run_fork, tmp_path):
        with projects(tmp_path, home=homes[way.abandoned]) as project:
            yield Worker(project, run_fork)
