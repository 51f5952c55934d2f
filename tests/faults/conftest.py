"""A project in a directory of its own, real ``perago`` processes in it, and nobody left behind."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import PATIENCE_SECONDS, PROC, children_of, is_stopped, processes_with, until

from perago.model.attempt import STAGING_PREFIX
from perago.model.commit import Commit
from perago.model.run import RunRecord
from perago.settings import Settings
from perago.wiring import open_queue, open_store

HERE = Path(__file__).parent
REPOSITORY = "chain"

if not (PROC / "self" / "environ").exists():
    collect_ignore_glob = ["test_*.py"]  # processes are found, and known to be gone, by /proc


class Project:
    """One working directory, one PERAGO_HOME, and the processes that work on it."""

    def __init__(self, directory: Path, *, home: Path | None = None) -> None:
        """With ``home``, everything that was done there is taken over."""
        self.directory = directory / "project"
        self.home = directory / "home"
        self.directory.mkdir()
        if home is not None:
            shutil.copytree(home, self.home)
        self.settings = Settings(home=self.home, _env_file=None)
        self.store = open_store(self.settings)
        self.queue = open_queue(self.settings)
        self._started: list[subprocess.Popen] = []
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("PERAGO_")
        }
        self.environment = inherited | {"PERAGO_HOME": str(self.home)}

    # --- processes ------------------------------------------------------------------------------
    def start(self, *arguments, failpoints="", **environment):
        """``perago …`` as a terminal starts it: in a process group of its own."""
        command = [Path(sys.executable).with_name("perago"), *arguments]
        return self.spawn(command, failpoints=failpoints, **environment)

    def spawn(self, command, *, failpoints="", **environment):
        number = len(self._started)
        with (
            (self.directory.parent / f"{number}.out").open("wb") as out,
            (self.directory.parent / f"{number}.err").open("wb") as err,
        ):
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.directory,
                env=self.environment
                | {"PERAGO_FAILPOINTS": failpoints}
                | {name: str(value) for name, value in environment.items()},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def run(self, *arguments, expect=0, failpoints="", **environment):
        """``perago run --json …`` to its end; what it printed."""
        process = self.start("run", "--json", *arguments, failpoints=failpoints, **environment)
        return self.ended(process, expect=expect)

    def ended(self, process, *, expect=0):
        """Wait for it and check how it ended; the JSON document it printed, if any."""
        code = process.wait(PATIENCE_SECONDS)
        out, err = self.output_of(process)
        assert code == expect, f"exit code {code}, not {expect}\n{out}\n{err}"
        return json.loads(out) if out.strip() else None

    def output_of(self, process):
        number = self._started.index(process)
        return tuple(
            (self.directory.parent / f"{number}.{end}").read_text(errors="replace")
            for end in ("out", "err")
        )

    def processes(self) -> list[int]:
        """Every living process of this project: whoever was handed its PERAGO_HOME."""
        return processes_with("PERAGO_HOME", self.home)

    def executor_of(self, runner) -> int:
        """The process id of the executor a runner has started."""
        return until(lambda: children_of(runner.pid), "an executor")[0]

    def reap(self) -> None:
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait(PATIENCE_SECONDS)
        until(lambda: not self.processes(), "the project's processes to be gone")
        self.store.close()
        self.queue.close()

    # --- what a run has come to ------------------------------------------------------------------
    def add(self, module: str) -> None:
        """Put one of this directory's task modules into the project."""
        shutil.copy(HERE / "modules" / f"{module}.py", self.directory / f"{module}.py")

    def seed(self, repository: str = REPOSITORY, branch: str = "main") -> Commit:
        """A repository with one commit to start from: three files and a folder."""
        self.store.create_repository(repository, default_branch=branch)
        for key in ("a.txt", "b.txt", "folder/c.txt"):
            self.store.put_bytes(repository, branch, key, f"{key} as it was\n".encode())
        return self.store.commit(repository, branch, message="seed", metadata={})

    @property
    def only_run(self) -> RunRecord:
        (run,) = self.queue.runs()
        return run

    def events(self) -> list[dict]:
        """The steps that ended so far, over all runs."""
        return [
            json.loads(line)
            for log in self.settings.logs.glob("*/events.jsonl")
            for line in log.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def wait_for_step(self, step: str, *, reference: str | None = None) -> None:
        until(
            lambda: any(
                event["step"] == step and reference in (None, event["reference"])
                for event in self.events()
            ),
            f"step {step} of {reference or 'any task'} to end",
        )

    def tree(self, ref: str = "main", repository: str = REPOSITORY) -> dict[str, bytes]:
        return {
            entry.key: self.store.read_bytes(repository, ref, entry.key)
            for entry in self.store.list_objects(repository, ref)
        }

    def published(self, branch: str = "main", repository: str = REPOSITORY) -> list[str | None]:
        """The steps on the branch, oldest first; None for commits that no step made."""
        commits = list(self.store.history(repository, branch))
        assert all(len(commit.parents) <= 1 for commit in commits)
        return [commit.metadata.get("perago.reference_task_name") for commit in commits][::-1]

    def assert_nothing_left(self, repository: str = REPOSITORY) -> None:
        """No private branch, no private directory, no uncommitted object, no damage."""
        assert [b.name for b in self.store.branches(repository, prefix=STAGING_PREFIX)] == []
        assert list(self.settings.attempts.glob("*")) == []
        assert self.store.uncommitted(repository, "main") == []
        report = self.store.verify()
        assert report.clean, report


@pytest.fixture(name="is_stopped")
def _is_stopped():
    return is_stopped


@pytest.fixture(scope="session")
def load_module():
    """Imports one of the task modules into this process, to run an attempt right here."""

    def load(name):
        if name not in sys.modules:
            source = HERE / "modules" / f"{name}.py"
            spec = importlib.util.spec_from_file_location(name, source)
            sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(sys.modules[name])
        return sys.modules[name]

    return load


@pytest.fixture(name="until")
def _until():
    return until


@pytest.fixture(scope="session")
def projects():
    """Makes projects, each in a directory; their processes are gone when it is done with."""

    @contextlib.contextmanager
    def opened(directory, *, home=None):
        project = Project(directory, home=home)
        try:
            yield project
        finally:
            project.reap()

    return opened


@pytest.fixture
def project(tmp_path, projects):
    with projects(tmp_path) as project:
        yield project


@pytest.fixture
def chain(project):
    """A project with the module ``chain`` and a seeded repository."""
    project.add("chain")
    project.seed()
    return project
