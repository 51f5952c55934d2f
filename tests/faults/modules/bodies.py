"""A task whose body misbehaves in a chosen way the first time, and works after that.

The first time is known by a file in the directory FLAGS (in the environment), made by the body. The
tasks' names are this test process's own: it may share a Conductor with another one.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, pipeline, task

AT_ONCE = RetryPolicy(count=2, delay_seconds=0)
FLAGS = Path(os.environ["FLAGS"])
WHO = os.environ.get("PYTEST_XDIST_WORKER", "alone")


class Choice(BaseModel):
    how: str


class Surroundings(BaseModel):
    directory: str
    environment: str | None


def exit_hard():
    os._exit(3)


def exit_soft():
    sys.exit("enough")


def segfault():
    ctypes.string_at(0)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def interrupted():
    raise KeyboardInterrupt


def out_of_memory():
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, limit))
    bytearray(8 << 30)


def removes_its_workspace():
    os.chdir(WORKSPACE[0])
    shutil.rmtree(WORKSPACE[0])


def hang():
    time.sleep(600)


def hang_deaf():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(600)


def lingering_child():
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])


def forked_child():
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)


def escaping_fork():
    """The child doesn't end: it returns from the body, as its parent does."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)


def much_output():
    for number in range(40_000):
        print(f"{number:050}")  # noqa: T201 - the subject of the test


def binary_output():
    sys.stdout.buffer.write(b"\xff\xfe not text \x80\n")
    sys.stdout.flush()
    os.write(2, b"\xc3\x28 neither\n")


def elsewhere():
    os.chdir("/")


def nowhere():
    directory = Path(tempfile.mkdtemp())
    os.chdir(directory)
    directory.rmdir()


def lingering_thread():
    threading.Thread(target=time.sleep, args=(600,)).start()


def changes_environment():
    os.environ["CHANGED_BY_BODY"] = "yes"
    del os.environ["HOME"]


def closes_descriptors():
    print("unflushed", end="")  # noqa: T201 - the subject of the test
    os.close(1)
    os.close(2)


def closes_streams():
    sys.stdout.close()
    sys.stderr.close()


WORKSPACE: list[Path] = []


def misbehave(ws: Path, how: str) -> None:
    flag = FLAGS / how
    if not flag.exists():
        flag.touch()
        WORKSPACE[:] = [ws]
        globals()[how]()


@task(
    name=f"{WHO}.misbehave",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=AT_ONCE),
)
def misbehaving(ws: Path, params: Choice) -> Choice:
    misbehave(ws, params.how)
    (ws / f"{params.how}.txt").write_text("done\n")
    return params


@task(
    name=f"{WHO}.retried",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=AT_ONCE, timeout=TimeoutPolicy(seconds=6, policy="RETRY")),
)
def retried(ws: Path, params: Choice) -> Choice:
    misbehave(ws, params.how)
    return params


@task(
    name=f"{WHO}.given_up",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=AT_ONCE, timeout=TimeoutPolicy(seconds=3, policy="TIME_OUT_WF")),
)
def given_up(ws: Path, params: Choice) -> Choice:
    misbehave(ws, params.how)
    return params


@task(name=f"{WHO}.after", owner_email="d@example.com", workspace=WorkspaceSpec())
def after(ws: Path, params: Choice) -> Surroundings:
    print("printed afterwards")  # noqa: T201 - where this goes is the subject of a test
    (ws / f"after-{params.how}.txt").write_text("done\n")
    return Surroundings(directory=str(Path.cwd()), environment=os.environ.get("CHANGED_BY_BODY"))


def each_followed_by_another(ways):
    steps = ((misbehaving.with_params(how=way), after.with_params(how=way)) for way in ways)
    return pipeline("chain", [step for pair in steps for step in pair])


FAILING = [
    "exit_hard",
    "exit_soft",
    "segfault",
    "killed",
    "interrupted",
    "out_of_memory",
    "removes_its_workspace",
]
HARMLESS = [
    "lingering_child",
    "forked_child",
    "escaping_fork",
    "much_output",
    "binary_output",
    "elsewhere",
    "nowhere",
    "lingering_thread",
    "changes_environment",
    "closes_descriptors",
    "closes_streams",
]

failing = each_followed_by_another(FAILING)
harmless = each_followed_by_another(HARMLESS)
with_retry = pipeline("chain", [retried])
without_retry = pipeline("chain", [given_up])
