"""The crash matrix on the embedded store: real processes, killed at every failpoint."""

from __future__ import annotations

import sys

import pytest

from perago.testing.conformance.crashes import CrashMatrix, MatrixWorker


class Worker(MatrixWorker):
    """At work in a project of its own."""

    def __init__(self, project):
        super().__init__(project.settings, project.store, project.queue, "chain")
        self._project = project

    def run_process(self, *, body, failpoints):
        command = [sys.executable, "-m", "perago.testing.one_attempt"]
        process = self._project.spawn(command, failpoints=failpoints, BODY=body)
        code = process.wait(60)
        if code > 0:
            pytest.fail(f"it ended with {code}: {self._project.output_of(process)}")
        return code

    def tree(self):
        return self._project.tree()

    def assert_nothing_left(self):
        super().assert_nothing_left()
        assert self.store.verify().clean


@pytest.fixture(scope="module")
def homes(projects, tmp_path_factory):
    """How things stand before the attempt that will be killed; True: with an abandoned head."""
    made = {}
    for abandoned in (False, True):
        with projects(tmp_path_factory.mktemp("before")) as project:
            seed = project.seed()
            worker = Worker(project)
            worker.start()
            if abandoned:
                worker.killed_at("publish.done", body="change")
                assert worker.head.is_only_child_of(seed.id)
            made[abandoned] = project.home
    return made


class TestEmbedded(CrashMatrix):
    @pytest.fixture
    def worker(self, way, homes, projects, tmp_path):
        with projects(tmp_path, home=homes[way.abandoned]) as project:
            yield Worker(project)
