"""What tests need on a real Conductor: runs of made-up steps, and time that it acts on."""

import time
import uuid
from contextlib import contextmanager

from perago.adapters.conductor.client import ConductorClient, ConductorConfig
from perago.adapters.conductor.definitions import ConductorDefinitions
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.runs import ConductorRuns
from perago.adapters.conductor.tasks import update_of
from perago.file_lock import locked
from perago.model.run import ResultField, RunPlan
from perago.stack.server import read_record, stop
from perago.stack.test_server import start_conductor

ADDRESS_VARIABLE = "PERAGO_TEST_CONDUCTOR"
"""Names a server that is up already, for who runs a few tests again and again."""

STARTS_SOONER = ("-XX:TieredStopAtLevel=1",)
"""For Java: half the work of a start, and slower work later."""

A_YEAR = 365 * 24 * 3600


class ConductorBench:
    """Registers and starts workflows of steps that no other test has."""

    def __init__(self, address):
        access = ConductorConfig(address)
        self.orchestrator = ConductorRuns(access)
        self.definitions = ConductorDefinitions(access)
        self.api = ConductorClient(access)
        self._started = []

    def close(self):
        """End what is still active, so that the server is as idle as it was before."""
        for run_id in self._started:
            if self.orchestrator.get(run_id).status.is_active:
                self.orchestrator.cancel(run_id, "the test is over")
        for one in (self.orchestrator, self.definitions, self.api):
            one.close()

    def start(self, *steps, workspace):
        return self.start_plan(self.registered(*steps), workspace)

    def registered(self, *steps):
        """A plan of these steps, with everything registered that it takes."""
        plan = RunPlan(f"conformance_{uuid.uuid4().hex[:12]}", "chains:chain", steps)
        for step in steps:
            self.definitions.push_task(task_definition(step))
        self.definitions.push_workflow(workflow_definition(plan))
        return plan

    def start_plan(self, plan, workspace, **given):
        run_id = self.orchestrator.start(plan, workspace, **given)
        self._started.append(run_id)
        return run_id

    def start_as_somebody_else(self, plan, order):
        """As a person or another program does: without any of our marks."""
        run_id = self.api.send(
            "POST", api_path("workflow"), {"name": plan.name, **order}, doing="…"
        )
        self._started.append(run_id)
        return run_id

    def run_status(self, run_id):
        return self.orchestrator.get(run_id).status

    def requeue(self, delivery):
        update = update_of(delivery, status="IN_PROGRESS")
        self.api.send("POST", api_path("tasks"), update, doing="requeueing")

    def advance(self, seconds):
        time.sleep(seconds)
        for run_id in self._started:
            if self.run_status(run_id).is_active:
                self.api.send("PUT", api_path("workflow", "decide", run_id), doing="deciding")


def task_definition(step):
    retry, timeout = step.controls.retry, step.controls.timeout
    return {
        "name": step.task_name,
        "ownerEmail": "tests@example.com",
        "retryCount": retry.count,
        "retryLogic": retry.logic,
        "retryDelaySeconds": retry.delay_seconds,
        "timeoutPolicy": timeout.policy,
        "timeoutSeconds": timeout.seconds,
        "responseTimeoutSeconds": timeout.response_seconds or A_YEAR,
    }


def workflow_definition(plan):
    workspace, tasks = "${workflow.input.workspace}", []
    for step in plan.steps:
        inputs = {"params": _params(step)}
        if step.uses_workspace:
            inputs["workspace"] = workspace
            workspace = f"${{{step.reference}.output.workspace}}"
        reference = {"name": step.task_name, "taskReferenceName": step.reference}
        tasks.append({**reference, "type": "SIMPLE", "inputParameters": inputs})
    return {
        "name": plan.name,
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": "tests@example.com",
        "tasks": tasks,
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 0,
    }


def _params(step):
    own = f"workflow.input.params.{step.reference}"
    if not any(isinstance(value, ResultField) for value in step.params.values()):
        return f"${{{own}}}"
    return {
        name: f"${{{'.'.join((value.reference, 'output', 'result', *value.path))}}}"
        if isinstance(value, ResultField)
        else f"${{{own}.{name}}}"
        for name, value in step.params.items()
    }


# --- one server for all processes of a test run ---------------------------------------------------


@contextmanager
def shared_conductor(directory):
    """Its API's address. The first process starts it, the last one ends it."""
    users, server = directory / "users", directory / "server"
    with locked(directory / "lock"):
        count = _read(users)
        if count == 0:
            start_conductor(server)
        users.write_text(str(count + 1))
    try:
        yield read_record(server).health_url.replace("/health", "/api")
    finally:
        with locked(directory / "lock"):
            left = _read(users) - 1
            users.write_text(str(left))
            if left == 0:
                stop(server)


def _read(users):
    return int(users.read_text()) if users.exists() else 0
