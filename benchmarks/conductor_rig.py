"""A Conductor of a benchmark's own, workers on it, and what both sides' accounts of them are."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from measuring import MIB, BenchmarkError, say

from perago.stack.conductor import ensure_conductor
from perago.stack.test_server import start_conductor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.stack.test_server import TemporaryConductor

OWNER = "bench@example.com"
PERAGO = str(Path(sys.executable).with_name("perago"))
RAW_POLLERS = Path(__file__).with_name("conductor_raw_pollers.py")
PATIENCE_SECONDS = 120.0

REST_SECONDS = 1.0
REST_PART = 0.1
"""The part of a core below which a worker is at rest, for that long."""

AS_IT_COMES = {"spring.sql.init.mode": "never"}
"""Without our setting that makes Conductor look at every workflow every few seconds."""

_OURS = ("PERAGO_", "LAKECTL_", "CONDUCTOR_", "PYTHONDONTWRITEBYTECODE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MODULE = """\
from pathlib import Path
from pydantic import BaseModel
from perago import WorkspaceSpec, task

class Nothing(BaseModel):
    pass

"""
_FREE = """\
@task(name="{name}", owner_email="{owner}")
def idle(params: Nothing) -> Nothing:
    return params
"""
_WRITABLE = """\
@task(name="{name}", owner_email="{owner}", workspace=WorkspaceSpec())
def look(workspace: Path, params: Nothing) -> Nothing:
    return params
"""


@dataclass(frozen=True, slots=True)
class Side:
    """Who is measured: a name, and the module and task that are its own alone.

    The module is written as both perago 0.6.1 and this one take it.
    """

    name: str
    module: str
    uses_workspace: bool = False

    @property
    def task(self) -> str:
        return f"bench_{self.module}"

    def write_module(self, directory: Path) -> None:
        declared = _WRITABLE if self.uses_workspace else _FREE
        text = _MODULE + declared.format(name=self.task, owner=OWNER)
        (directory / f"{self.module}.py").write_text(text)


class Conductor:
    """The server as a client that starts workflows sees it; every workflow is of one task."""

    def __init__(self, server: TemporaryConductor) -> None:
        self.server = server
        self.address = server.settings["CONDUCTOR_SERVER_URL"]
        place = urlsplit(self.address)
        self._path = place.path
        self._connection = HTTPConnection(str(place.hostname), place.port, timeout=60)

    def close(self) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        sent = None if body is None else json.dumps(body)
        headers = {"Content-Type": "application/json"}
        try:
            self._connection.request(method, f"{self._path}{path}", sent, headers)
            answer = self._connection.getresponse()
            text = answer.read().decode()
        except BaseException:
            self._connection.close()  # a late response must not answer the next request
            raise
        if answer.status >= 300:
            raise BenchmarkError(f"{method} {path}: {answer.status} {text}")
        return json.loads(text) if text[:1] in ("{", "[") else text

    def register(self, side: Side) -> None:
        keys = ["workspace", "params"] if side.uses_workspace else ["params"]
        step = {
            "name": side.task,
            "taskReferenceName": "step",
            "type": "SIMPLE",
            "inputParameters": {key: f"${{workflow.input.{key}}}" for key in keys},
        }
        definition = {
            "name": side.task,
            "version": 1,
            "schemaVersion": 2,
            "ownerEmail": OWNER,
            "timeoutSeconds": 0,
            "timeoutPolicy": "ALERT_ONLY",
            "tasks": [step],
        }
        # The lease and the retries that both sides declare by declaring none.
        task = {
            "name": side.task,
            "ownerEmail": OWNER,
            "retryCount": 3,
            "retryDelaySeconds": 60,
            "timeoutSeconds": 0,
            "responseTimeoutSeconds": 600,
        }
        self.ask("POST", "/metadata/taskdefs", [task])
        self.ask("PUT", "/metadata/workflow", [definition])

    def queue(self, side: Side, inputs: Sequence[Mapping[str, object]]) -> list[str]:
        """Start a workflow for each input; their ids."""
        return [str(self.ask("POST", f"/workflow/{side.task}", given)) for given in inputs]

    def cancel(self, workflows: Sequence[str]) -> None:
        """End those that still run, so that no task of theirs is left in a queue."""
        for workflow in workflows:
            if self.ask("GET", f"/workflow/{workflow}?includeTasks=false")["status"] == "RUNNING":
                self.ask("DELETE", f"/workflow/{workflow}")

    def ended(self, side: Side, workflows: Sequence[str], worker: Worker) -> list[float]:
        """When the workflows' tasks ended, by the server's clock, which is ours; sorted.

        Raises BenchmarkError for one that didn't complete at the first attempt, or if the worker
        has ended or takes too long.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.ask("GET", f"/tasks/queue/sizes?taskType={side.task}")[side.task]:
            worker.assert_works_on(deadline)
            time.sleep(0.1)
        return sorted(self._ended(workflow, worker, deadline) for workflow in workflows)

    def _ended(self, workflow: str, worker: Worker, deadline: float) -> float:
        while True:
            found = self.ask("GET", f"/workflow/{workflow}")
            if found["status"] == "COMPLETED" and len(found["tasks"]) == 1:
                return float(found["tasks"][0]["endTime"]) / 1000
            if found["status"] != "RUNNING" or len(found["tasks"]) > 1:
                ends = [(t["status"], t.get("reasonForIncompletion")) for t in found["tasks"]]
                raise BenchmarkError(f"workflow {workflow} didn't complete at once: {ends}")
            worker.assert_works_on(deadline)
            time.sleep(0.05)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that are resident, and the same with what processes share divided among them."""

    resident: int
    proportional: int

    @classmethod
    def of(cls, pids: Sequence[int]) -> Memory:
        rollups = [Path(f"/proc/{pid}/smaps_rollup").read_text().split() for pid in pids]
        resident, proportional = (
            sum(1024 * int(words[words.index(name) + 1]) for words in rollups)
            for name in ("Rss:", "Pss:")
        )
        return cls(resident, proportional)

    def __str__(self) -> str:
        return f"{self.resident / MIB:.0f} MiB (PSS {self.proportional / MIB:.0f})"


class Worker:
    """One worker with all its processes; a context manager that leaves none of them."""

    def __init__(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = directory / f"worker-{secrets.token_hex(4)}.log"
        with self.log.open("wb") as log:
            self.began = time.time()
            self._process = subprocess.Popen(
                list(command),
                cwd=directory,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()

    def assert_works_on(self, deadline: float) -> None:
        """Raises BenchmarkError with the end of its log if it has ended, or if it is too late."""
        if self._process.poll() is not None or time.monotonic() > deadline:
            said = self.log.read_text()[-2000:]
            raise BenchmarkError(f"this worker has ended, or takes too long; it said\n{said}")

    @property
    def pids(self) -> list[int]:
        """The one that was started first, then all below it."""
        found = [self._process.pid]
        for pid in found:
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    found += map(int, children.read_text().split())
        return found

    @property
    def executors(self) -> list[int]:
        """Those of our own worker's processes that run task code."""
        return [pid for pid in self.pids if b"perago.worker.executor" in _command_of(pid)]

    def seconds_of_processor(self) -> float:
        total = 0
        for pid in self.pids:
            # The second field is the program's name in parentheses and may hold anything.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def await_rest(self) -> None:
        """Return when none of its processes has anything left to do: all are up, and idle."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        spent = self.seconds_of_processor()
        while True:
            time.sleep(REST_SECONDS)
            before, spent = spent, self.seconds_of_processor()
            if spent - before < REST_PART * REST_SECONDS:
                return
            self.assert_works_on(deadline)

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def terminate(self, patience_seconds: float) -> float | None:
        """Seconds from SIGTERM to the first process's exit; None if that is too long to wait."""
        began = time.perf_counter()
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            return None
        return time.perf_counter() - began

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def environment_of_anybody(compiled: Path) -> dict[str, str]:
    """Without settings of ours; modules are compiled once, as after an installation, for all."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    return {**kept, "PYTHONPYCACHEPREFIX": str(compiled)}


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


class Rig:
    """The server, a directory for workers to work in, and how each side's worker is started."""

    def __init__(self, scratch: Path, conductor: Conductor, lakefs: Mapping[str, str]) -> None:
        self.conductor = conductor
        self._lakefs = lakefs
        self._directory = scratch / "workers"
        self._directory.mkdir()

    def side(self, name: str, module: str, *, uses_workspace: bool = False) -> Side:
        side = Side(name, module, uses_workspace)
        side.write_module(self._directory)
        self.conductor.register(side)
        return side

    def raw_pollers(self, side: Side, count: int) -> Worker:
        return self._worker(str(RAW_POLLERS), self.conductor.address, side.task, str(count))

    def ours(self, *sides: Side, executors: int) -> Worker:
        modules = [side.module for side in sides]
        return self._worker(PERAGO, "start", *modules, "-j", str(executors))

    def peer(self, python: Path, side: Side, executors: int) -> Worker:
        return self._worker(
            *("-m", "perago.cli", "start", side.module, "-j", str(executors)), python=str(python)
        )

    def _worker(self, *arguments: str, python: str = sys.executable) -> Worker:
        own = self._directory / secrets.token_hex(4)
        environment = {
            **environment_of_anybody(self._directory / "compiled"),
            **self._lakefs,
            "CONDUCTOR_SERVER_URL": self.conductor.address,
            "PERAGO_HOME": str(own / "home"),
            "PERAGO_WORKSPACE_ROOT": str(own / "attempts"),
            "PERAGO_LOG_ROOT": str(own / "logs"),
        }
        return Worker([python, *arguments], self._directory, environment)


@contextmanager
def rig(scratch: Path, lakefs: Mapping[str, str] | None = None) -> Iterator[Rig]:
    """``lakefs`` are the settings of a lakeFS, for sides that use workspaces."""
    ensure_conductor(lambda line: say(f"  {line}"))
    with start_conductor(scratch / "conductor", properties=AS_IT_COMES) as server:
        conductor = Conductor(server)
        try:
            yield Rig(scratch, conductor, lakefs or {})
        finally:
            conductor.close()
