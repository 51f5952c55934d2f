"""Workers as real processes, on a real Conductor, with workspaces in a real lakeFS."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

from perago.adapters.conductor.http import api_path
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.declare.task import Task
from perago.errors import OrchestratorError
from perago.model.attempt import STAGING_PREFIX
from perago.model.commit import ACTIONS_PREFIX
from perago.model.workspace import WorkspaceRef
from perago.operations.declared import Declared, definitions_of
from perago.operations.registration import register
from perago.stack.server import free_port
from perago.testing.conformance.store import StoreBench
from support.conductor import ConductorBench
from support.lakefs import store_on
from support.processes import children_of, command_of, is_stopped, processes_with, until

TASKS = Path(__file__).parent / "tasks" / "worker_tasks.py"
SEED = {
    "a.txt": b"a.txt as it was\n",
    "b.txt": b"b.txt as it was\n",
    "folder/c.txt": b"folder/c.txt as it was\n",
}
RUN_SECONDS = 90.0
"""How long a run may take here, with a lease or two that has to run out."""

_OURS = ("PERAGO_", "LAKECTL_", "CONDUCTOR_")
_PROD_SECONDS = 0.5
_ASKING_SECONDS = 3.0
_LONGEST_SECONDS = 90.0


class WorkerRig:
    """A repository of its own in lakeFS, a Conductor, and workers that serve it."""

    def __init__(self, directory, conductor_address, lakefs):
        self.directory = directory
        self.address = conductor_address
        self._lakefs = lakefs
        self.conductor = ConductorBench(conductor_address)
        self.store = store_on(lakefs)
        outside = directory / "outside"
        outside.mkdir()
        self.bench = StoreBench(self.store, outside)
        self.repository = self.bench.repository
        self.seed = self.bench.commit("main", SEED | {FENCE_KEY: FENCE_ACTION}).id
        self.workers = []
        self._paths = (directory / f"fresh-{number}" for number in itertools.count())

    def close(self):
        for worker in self.workers:
            worker.reap()
        self.conductor.close()
        self.store.close()

    # --- workers ----------------------------------------------------------------------------------
    def worker(self, *modules, jobs=1, home="home", listens=False, **environment):
        """Start ``perago start``; what it works with is by default that of all workers here."""
        if listens:
            environment["PERAGO_LISTEN"] = f"127.0.0.1:{free_port()}"
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
        command = [Path(sys.executable).with_name("perago"), "start", *(modules or [TASKS])]
        worker = Worker(
            len(self.workers),
            self.directory,
            [*command, "-j", jobs],
            kept
            | self._lakefs.settings
            | {"CONDUCTOR_SERVER_URL": self.address}
            | {"PERAGO_HOME": str(self.directory / home), "PERAGO_LOG_FORMAT": "json"}
            | {name: str(value) for name, value in environment.items()},
        )
        self.workers.append(worker)
        return worker

    def attempts_of(self, home="home"):
        """The directories of attempts that are there now, whatever address lakeFS was known by."""
        found = (self.directory / home).glob("lakefs-*/attempts/*")
        return [path for path in found if path.is_dir()]

    @property
    def fresh(self):
        """A path that nothing has yet, for a gate or for counting occasions."""
        return next(self._paths)

    # --- runs -------------------------------------------------------------------------------------
    @property
    def workspace(self):
        head = self.store.head(self.repository, "main")
        return WorkspaceRef(
            repository=self.repository, branch="main", ref_type="commit", ref=head.id
        )

    def register(self, pipeline):
        generated = definitions_of(Declared("", tuple(pipeline.tasks), (pipeline,)))
        register(self.conductor.definitions, generated.tasks, generated.workflows)

    def start(self, pipeline, params=None):
        """Register a pipeline and start it at the branch's head; the run's id."""
        self.register(pipeline)
        works_in_one = any(task.workspace for task in pipeline.tasks)
        workspace = self.workspace if works_in_one else None
        return self.conductor.start_plan(pipeline.plan(params), workspace)

    def start_raw(self, pipeline, given):
        """Start with any input, as other programs can."""
        self.register(pipeline)
        return self.conductor.start_as_somebody_else(pipeline.plan(), {"input": given})

    def run(self, run_id):
        return self.conductor.orchestrator.get(run_id)

    def prod(self, run_id):
        """Have Conductor look at the run now: by itself it does so once a minute."""
        with contextlib.suppress(OrchestratorError):
            self.conductor.api.send("PUT", api_path("workflow", "decide", run_id), doing="deciding")

    def held_at_a_gate(self, pipeline, **worker):
        """A worker at work in a pipeline's only body, the gate that waits for, and the run's id."""
        started, gate = self.worker(**worker), self.fresh
        run_id = self.start(pipeline, {pipeline.steps[0].reference: {"gate": str(gate)}})
        until(lambda: reached(gate), lambda: f"the body to run\n{started}")
        return started, gate, run_id

    def ended(self, run_id, *, seconds=RUN_SECONDS):
        """The run, once it is over."""
        return self.when(lambda run: not run.status.is_active, run_id, seconds=seconds)

    def completed(self, run_id, *, seconds=RUN_SECONDS):
        run = self.ended(run_id, seconds=seconds)
        assert run.status == "COMPLETED", self.story(run)
        return run

    def when(self, condition, run_id, *, seconds=RUN_SECONDS):
        """The run, once ``condition`` holds of it. Conductor is prodded on the way."""
        prodded_at = 0.0

        def found():
            nonlocal prodded_at
            if time.monotonic() - prodded_at > _PROD_SECONDS:
                self.prod(run_id)
                prodded_at = time.monotonic()
            with contextlib.suppress(OrchestratorError):
                run = self.run(run_id)
                return run if condition(run) else None

        return until(found, lambda: self.story(self.run(run_id)), seconds=seconds)

    def is_configured(self, task):
        """Whether a worker has polled for the task lately: idle ones do so every second."""
        polls = self.conductor.orchestrator.last_polls([task.name])
        return task.name in polls and time.time() - polls[task.name][1] < _ASKING_SECONDS

    def story(self, run):
        """What a person wants to know of a test that failed."""
        attempts = "\n".join(
            f"  {a.attempt.reference_task_name} {a.attempt.retry_count} {a.status} "
            f"polled {a.poll_count} times, last by {a.worker_id}: {a.reason}"
            for a in run.attempts
        )
        return "\n".join([f"run {run.id} is {run.status}", attempts, *map(str, self.workers)])

    # --- what has come of it ----------------------------------------------------------------------
    def history(self):
        """From the seed on, oldest first; one line without side lines."""
        commits = list(self.store.history(self.repository, "main"))[::-1]
        commits = commits[[commit.id for commit in commits].index(self.seed) :]
        assert all(after.parents == (before.id,) for before, after in itertools.pairwise(commits))
        return commits

    def published(self):
        """The steps whose commits are on the branch, oldest first."""
        return [_step(commit.metadata["perago.task_name"]) for commit in self.history()[1:]]

    def tree(self):
        found = self.bench.content("main")
        return {key: data for key, data in found.items() if not key.startswith(ACTIONS_PREFIX)}

    def staging_branches(self):
        found = self.store.branches(self.repository, prefix=STAGING_PREFIX)
        return [branch.name for branch in found]

    def assert_nothing_left(self, *homes):
        """No worker's process, no private branch or directory, nothing uncommitted, no noise."""
        left = {
            "processes": [
                command_of(pid)
                for worker in self.workers
                for pid in processes_with("PERAGO_HOME", worker.home)
            ],
            "directories": [path for home in homes or ("home",) for path in self.attempts_of(home)],
            "branches": self.staging_branches(),
            "uncommitted": self.store.uncommitted(self.repository, "main"),
            "noise": [line for worker in self.workers for line in worker.noise],
        }
        assert not any(left.values()), left


def task_in(source):
    """The only task of a module, declared in this process too without the module staying."""
    namespace = {"__name__": "made_up"}
    exec(source, namespace)  # noqa: S102 - what a test has written itself
    (task,) = [value for value in namespace.values() if isinstance(value, Task)]
    return task


def reached(gate):
    """Whether a body waits there, or has been there."""
    return gate.with_name(f"{gate.name}.reached").exists()


def attempts_of(run):
    """The steps of a run's attempts, in their order, each with how it ended."""
    return [(_step(record.attempt.task_name), str(record.status)) for record in run.attempts]


def completed_steps(run):
    return [step for step, status in attempts_of(run) if status == "COMPLETED"]


def _step(task_name):
    return task_name.rpartition(".")[2]


# --- one worker, from outside ---------------------------------------------------------------------


class Worker:
    """One ``perago start``, and everything below it."""

    def __init__(self, number, directory, command, environment):
        self.home = environment["PERAGO_HOME"]
        self._listens_at = environment.get("PERAGO_LISTEN")
        self._frozen = []
        self._out, self._err = (directory / f"worker-{number}.{end}" for end in ("out", "err"))
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    # --- its processes ----------------------------------------------------------------------------
    @property
    def pid(self):
        """The supervisor's."""
        return self._process.pid

    @property
    def poller(self):
        return until(lambda: self._below("perago.worker.poller"), "a poller")[0]

    @property
    def executors(self):
        return self._below("perago.worker.executor")

    def _below(self, module):
        return [pid for pid in children_of(self.pid) if f"-m {module}" in command_of(pid)]

    def stopped_executor(self):
        """The executor that a failpoint has stopped, once it has."""
        return until(
            lambda: [pid for pid in self.executors if is_stopped(pid)],
            lambda: f"an executor to stop\n{self}",
        )[0]

    # --- what it says -----------------------------------------------------------------------------
    def __str__(self):
        return f"worker {self.pid} said:\n{self.said}"

    @property
    def said(self):
        return self._err.read_text(errors="replace")

    @property
    def printed(self):
        return self._out.read_text(errors="replace")

    @property
    def _lines(self):
        return [line for line in self.said.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def events(self):
        return [json.loads(line) for line in self._lines if line.startswith("{")]

    @property
    def noise(self):
        """Lines that are no JSON: nothing of the kind belongs there."""
        return [line for line in self._lines if not line.startswith("{")]

    def heard(self, event, **fields):
        """The lines of an event, with these fields in them."""
        return [
            line
            for line in self.events
            if line.get("event") == event and fields.items() <= line.items()
        ]

    def wait_for(self, event, **fields):
        """The first line of an event."""
        return until(
            lambda: self.heard(event, **fields), lambda: f"a line {event} {fields}\n{self}"
        )[0]

    def wait_for_step(self, run_id, step, **fields):
        """The first event of a step in its own log of a run, which needs no supervisor."""
        log = Path(self.home) / "logs" / run_id / "events.jsonl"

        def found():
            lines = log.read_text().splitlines(keepends=True)
            events = [json.loads(line) for line in lines if line.endswith("\n")]
            return [e for e in events if e["step"] == step and fields.items() <= e.items()]

        return until(found, lambda: f"a step {step} {fields}\n{log.read_text()}")[0]

    @property
    def readiness(self):
        """What it answers to one who asks whether it takes work; it has to be listening."""
        connection = HTTPConnection(self._listens_at, timeout=5)
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().read().decode().strip()
        except OSError:
            return "silent"
        finally:
            connection.close()

    # --- how it ends ------------------------------------------------------------------------------
    def send(self, number):
        self._process.send_signal(number)

    def ask_to_stop(self):
        """SIGTERM; returns once that was noticed."""
        self.send(signal.SIGTERM)
        until(lambda: self.readiness in ("stopping", "silent"), "it to notice the signal")

    def kill(self):
        """End the supervisor as a crash would."""
        self._process.kill()
        self._process.wait()

    def resume(self, executor):
        os.kill(executor, signal.SIGCONT)

    def freeze(self):
        """Stop all of its processes, the supervisor first, as a machine that stands still."""
        self._frozen = [self.pid, *self._below("perago.worker")]
        for pid in self._frozen:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: all(map(is_stopped, self._frozen)), "all of its processes to stand still")

    def thaw(self):
        for pid in reversed(self._frozen):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def stop(self):
        """SIGTERM, and the seconds until it has ended, which it does well."""
        began = time.monotonic()
        self.send(signal.SIGTERM)
        assert self.end() == 0, str(self)
        return time.monotonic() - began

    def end(self, seconds=60.0):
        """Wait for it to end; its exit code."""
        until(lambda: self._process.poll() is not None, lambda: f"its end\n{self}", seconds=seconds)
        return self._process.returncode

    def reap(self):
        """Have nothing of it left, whatever it is at."""
        for pid in processes_with("PERAGO_HOME", self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()


class HeldExchange:
    """A fault of a wire: a request that is held on its way, or whose answer is, until released."""

    def __init__(self, when="before"):
        self._when = when
        self._held, self._released = threading.Event(), threading.Event()

    def __call__(self, exchange):
        if self._when == "before":
            exchange.keep_body()
            self._hold()
            exchange.reply(exchange.forward())
        else:
            answer = exchange.forward().keep()
            self._hold()
            exchange.reply(answer)

    def _hold(self):
        self._held.set()
        self._released.wait(_LONGEST_SECONDS)

    @property
    def is_held(self):
        return self._held.is_set()

    def release(self):
        self._released.set()
