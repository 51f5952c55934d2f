"""What tests share: hypothesis profiles, compiled modules, a look at every store, commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from perago.adapters.embedded.store import EmbeddedStore
from perago.cli.main import main

HERE = Path(__file__).parent
TASKS = HERE / "acceptance" / "songs_tasks.py"

pytest.register_assert_rewrite("support")

# A shell starts background jobs with SIGINT ignored, and children inherit that: whatever a test
# interrupts would never end. Children don't inherit a handler, so they start with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# CI repeats the same examples on every run and ignores how slow its machine is, so that a red build
# always means the change; developers explore new examples each time.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("dev", print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("matrix"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def common_directory(tmp_path_factory):
    """A directory that all processes of one test run share, whether there are several or one."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session", autouse=True)
def compiled_once(common_directory):
    """Tests start processes by the hundred: what these import is compiled once for all of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(common_directory / "bytecode"))
        yield


@pytest.fixture(scope="session")
def run_fork(tmp_path_factory):
    """Runs an attempt, in a process that has imported everything; how that process ended."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PERAGO_", "LAKECTL_"))}
    with subprocess.Popen(
        [sys.executable, "-m", "support.one_attempt"],
        cwd=tmp_path_factory.mktemp("forks"),
        env=kept | {"PYTHONPATH": str(HERE)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as forks:

        def run_fork(environment):
            print(json.dumps(environment), file=forks.stdin, flush=True)
            return int(forks.stdout.readline())

        yield run_fork
        forks.stdin.close()


@pytest.fixture(autouse=True)
def every_store_stays_sound(request):
    """After each test: nothing missing and nothing corrupt in any store below its directory."""
    if "tmp_path" not in request.fixturenames or request.node.get_closest_marker("damages_store"):
        yield
        return
    directory = request.getfixturevalue("tmp_path")
    yield
    for database in directory.rglob("store.db"):
        store = EmbeddedStore(database.parent, durable=False)
        try:
            report = store.verify()
        finally:
            store.close()
        assert report.clean, f"{database.parent}: {report.findings}"


# --- the command line as a person uses it, without the shell around it ---------------------------


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
    ours = ("PERAGO_", "LAKECTL_", "CONDUCTOR_")
    for name in [name for name in os.environ if name.startswith(ours)]:
        monkeypatch.delenv(name)
    shutil.copy(TASKS, tmp_path / "songs_tasks.py")
    (tmp_path / "data" / "raw").mkdir(parents=True)
    (tmp_path / "data" / "raw" / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "data" / "raw" / "b.txt").write_text("three\n")
    return tmp_path


@pytest.fixture
def small_spark(project, monkeypatch):
    """For commands that run Spark tasks on tiny data."""
    from support.spark import SMALL

    monkeypatch.setenv("PERAGO_SPARK_CONF", json.dumps(SMALL))


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
