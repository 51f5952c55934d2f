"""Workers as real processes, on a real Conductor, with workspaces in a real lakeFS."""

import contextlib
import itertools
import os
import sys
import time
from pathlib import Path

from conductor_bench import ConductorBench
from lakefs_bench import store_on
from living_processes import command_of, processes_with, until
from running_worker import Worker

from perago.adapters.conductor.responses import api_path
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.declare.task import Task
from perago.errors import OrchestratorError
from perago.model.attempt import STAGING_PREFIX
from perago.model.commit import ACTIONS_PREFIX
from perago.model.workspace import WorkspaceRef
from perago.operations.declared import Declared, definitions_of
from perago.operations.registration import register
from perago.stack.server import free_port
from perago.testing.conformance.store import Bench

TASKS = Path(__file__).with_name("worker_tasks.py")
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


class Place:
    """A repository of its own in lakeFS, a Conductor, and workers that serve it."""

    def __init__(self, directory, conductor_address, lakefs):
        self.directory = directory
        self.address = conductor_address
        self._lakefs = lakefs
        self.conductor = ConductorBench(conductor_address)
        self.store = store_on(lakefs)
        outside = directory / "outside"
        outside.mkdir()
        self.bench = Bench(self.store, outside)
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
            | {"PERAGO_HOME": str(self.directory / home)}
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
        """As somebody does who sends whatever input he likes."""
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
        """Whether somebody has asked for the task lately: idle workers do so every second."""
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
