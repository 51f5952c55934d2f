"""What tests need on a real Conductor: runs of made-up steps, and time that it acts on."""

import time
import uuid

from perago.adapters.conductor.client import ConductorClient, ConductorConfig
from perago.adapters.conductor.definitions import ConductorDefinitions
from perago.adapters.conductor.responses import api_path
from perago.adapters.conductor.runs import ConductorRuns
from perago.adapters.conductor.tasks import update_of
from perago.model.run import ResultField, RunPlan

A_YEAR = 365 * 24 * 3600


class ConductorBench:
    """Somebody who registers and starts workflows of steps that nobody else has."""

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
