"""The command line as a person uses it: in a directory of its own, without the shell around it."""

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from perago.cli.main import main
from perago.model.controls import TaskControls
from perago.model.run import RunPlan, StepPlan
from perago.settings import load_settings
from perago.wiring import open_queue, open_store

TASKS = Path(__file__).parent / "songs_tasks.py"


@dataclass(frozen=True)
class Answer:
    """What a command printed, and the code it ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        assert len(self.out.splitlines()) == 1, "one document on one line"
        return json.loads(self.out)

    @property
    def error(self):
        return json.loads(self.err.splitlines()[-1])["error"]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A directory with a task module and some data, and the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "songs_tasks", raising=False)
    for name in ("PERAGO_HOME", "PERAGO_WORKSPACE_ROOT", "PERAGO_FAILPOINTS"):
        monkeypatch.delenv(name, raising=False)
    shutil.copy(TASKS, tmp_path / "songs_tasks.py")
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "data" / "raw" / "b.txt").write_text("three\n")
    return tmp_path


@pytest.fixture
def perago(project, capfdbinary):
    """Run a command; nothing it raises escapes."""

    def run(*arguments):
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capfdbinary.readouterr()
        return Answer(int(end.value.code or 0), out.decode(), err.decode())

    return run


@pytest.fixture
def store(project):
    opened = open_store(load_settings())
    yield opened
    opened.close()


@pytest.fixture
def start_waiting(queue):
    """Start a run of one step that nobody works on; its id."""

    def start(name="songs", workspace=None):
        step = StepPlan(
            reference="count",
            task_name="songs.count",
            module="songs_tasks",
            uses_workspace=workspace is not None,
            params={},
            controls=TaskControls(),
        )
        return queue.start(RunPlan(name, "songs_tasks:songs", (step,)), workspace)

    return start


@pytest.fixture
def queue(project):
    opened = open_queue(load_settings())
    yield opened
    opened.close()
