"""Conductor's workflow JSON as the model's runs, and a plan as a workflow's input. No I/O."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.responses import document, documents, optional, required, seconds
from perago.adapters.conductor.tasks import record_of
from perago.errors import DefinitionDiffersError, OrchestratorError, PeragoError, RunError
from perago.model.run import ResultField, RunPlan, RunRecord, RunStatus, StepPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.model.controls import TaskControls
    from perago.model.workspace import WorkspaceRef

_START_KEY = "perago"
"""The input's field for our own data, a start's idempotency key and target. No task gets it."""
_WORKFLOW = "a workflow"
_RESULT = re.compile(r"\$\{(\w+)\.output\.result((?:\.[^{}.]+)*)\}")


# --- reading --------------------------------------------------------------------------------------


def run_of(raw: object) -> RunRecord:
    """A run, with all its attempts in the order they were scheduled."""
    workflow = document(raw, _WORKFLOW)
    created_at = seconds(workflow, "createTime", _WORKFLOW) or 0.0
    tasks = documents(workflow.get("tasks") or [], "tasks")
    records = [record_of(task) for task in tasks]
    return RunRecord(
        id=required(workflow, "workflowId", str, _WORKFLOW),
        plan=_plan_of(workflow),
        status=_status_of(workflow),
        created_at=created_at,
        updated_at=seconds(workflow, "updateTime", _WORKFLOW) or created_at,
        workspace=_workspace_of(workflow),
        reason=optional(workflow, "reasonForIncompletion", str, _WORKFLOW),
        attempts=tuple(sorted(records, key=lambda record: record.attempt.seq)),
    )


def is_active(raw: object) -> bool:
    """Whether there is a workflow, and it has not ended."""
    return raw is not None and _status_of(document(raw, _WORKFLOW)).is_active


def branch_of(raw: object) -> tuple[str, str] | None:
    """The repository and branch that a workflow's input names; None if it names none."""
    workspace = _object(_input_of(raw).get("workspace"))
    repository, branch = workspace.get("repository"), workspace.get("branch")
    if isinstance(repository, str) and isinstance(branch, str):
        return repository, branch
    return None


def idempotency_key_of(raw: object) -> str | None:
    """The idempotency key of the call that started a workflow; None if it was not ours."""
    key = _own_data(raw).get("start")
    return key if isinstance(key, str) else None


def _own_data(raw: object) -> Mapping[str, Any]:
    return _object(_input_of(raw).get(_START_KEY))


def _input_of(raw: object) -> Mapping[str, Any]:
    return _object(_object(raw).get("input"))


def _object(raw: object) -> Mapping[str, Any]:
    """A JSON object; empty for anything else, as other programs may send any input."""
    return raw if isinstance(raw, dict) else {}


def _status_of(workflow: Mapping[str, Any]) -> RunStatus:
    name = required(workflow, "status", str, _WORKFLOW)
    try:
        return RunStatus(name)
    except ValueError:
        raise OrchestratorError(f"Conductor sent a workflow whose status is {name!r}") from None


def _workspace_of(workflow: Mapping[str, Any]) -> WorkspaceRef | None:
    from pydantic import ValidationError

    from perago.model.workspace import WorkspaceRef

    try:
        return WorkspaceRef.model_validate(_input_of(workflow).get("workspace"))
    except ValidationError:
        return None  # of another program, or its first task will refuse it


def _plan_of(workflow: Mapping[str, Any]) -> RunPlan:
    """The plan, without the modules that declare its tasks: Conductor doesn't know them."""
    definition = optional(workflow, "workflowDefinition", dict, _WORKFLOW) or {}
    given = _object(_input_of(workflow).get("params"))
    target = _own_data(workflow).get("target")
    return RunPlan(
        name=required(workflow, "workflowName", str, _WORKFLOW),
        target=target if isinstance(target, str) else "",
        steps=tuple(_step_of(task, given) for task in _worker_tasks(definition)),
    )


def _worker_tasks(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    tasks = documents(definition.get("tasks") or [], "tasks of a workflow")
    return [task for task in tasks if task.get("type", "SIMPLE") == "SIMPLE"]


def _step_of(task: Mapping[str, Any], given: Mapping[str, Any]) -> StepPlan:
    what = "a task of a workflow"
    reference = required(task, "taskReferenceName", str, what)
    inputs = optional(task, "inputParameters", dict, what) or {}
    return StepPlan(
        reference=reference,
        task_name=required(task, "name", str, what),
        module="",
        uses_workspace="workspace" in inputs,
        params={**_object(given.get(reference)), **_result_fields(inputs.get("params"))},
        controls=_controls_of(optional(task, "taskDefinition", dict, what) or {}),
    )


def _result_fields(params: object) -> dict[str, ResultField]:
    found = {}
    for name, expression in _object(params).items():
        match = _RESULT.fullmatch(expression) if isinstance(expression, str) else None
        if match:
            found[name] = ResultField(match[1], tuple(match[2].split(".")[1:]))
    return found


def _controls_of(definition: Mapping[str, Any]) -> TaskControls:
    """A registered task's retries and time-outs; the defaults if they aren't valid for us."""
    from perago.model.controls import RetryPolicy, TaskControls, TimeoutPolicy

    try:
        return TaskControls(
            retry=RetryPolicy(
                count=definition["retryCount"],
                logic=definition["retryLogic"],
                delay_seconds=definition["retryDelaySeconds"],
            ),
            timeout=TimeoutPolicy(
                policy=definition["timeoutPolicy"],
                seconds=definition["timeoutSeconds"],
                response_seconds=definition["responseTimeoutSeconds"],
            ),
        )
    except (KeyError, PeragoError):
        return TaskControls()


# --- starting -------------------------------------------------------------------------------------


def workflow_input(
    plan: RunPlan, workspace: WorkspaceRef | None, definition: Mapping[str, Any], *, key: str
) -> dict[str, object]:
    """The whole input of a workflow that runs ``plan`` by its registered definition.

    Conductor uses the definition's default params only if none are sent, so all are sent. Raises
    DefinitionDiffersError if the definition isn't this plan's, and RunError for a param that the
    definition doesn't pass to its task.
    """
    tasks = {task.get("taskReferenceName"): task for task in _worker_tasks(definition)}
    registered = [(reference, task.get("name")) for reference, task in tasks.items()]
    planned = [(step.reference, step.task_name) for step in plan.steps]
    if registered != planned:
        raise DefinitionDiffersError(
            f"workflow {plan.name!r} is registered with other steps than the pipeline has: "
            f"{_named(registered)}, not {_named(planned)}",
            fix="register it again: `perago register`",
        )
    template = optional(definition, "inputTemplate", dict, "a workflow definition") or {}
    defaults = _object(template.get("params"))
    body: dict[str, object] = {} if workspace is None else {"workspace": workspace.model_dump()}
    body[_START_KEY] = {"start": key, "target": plan.target}
    body["params"] = {
        step.reference: _step_params(step, tasks[step.reference], defaults.get(step.reference))
        for step in plan.steps
    }
    return body


def restart_input(raw: object, workspace: WorkspaceRef | None, *, key: str) -> dict[str, object]:
    """A workflow's input for a new one like it that starts at ``workspace``."""
    body: dict[str, object] = {**_input_of(raw), _START_KEY: {**_own_data(raw), "start": key}}
    return body if workspace is None else {**body, "workspace": workspace.model_dump()}


def _step_params(step: StepPlan, task: Mapping[str, Any], defaults: object) -> dict[str, object]:
    literals = {k: v for k, v in step.params.items() if not isinstance(v, ResultField)}
    results = {k: v for k, v in step.params.items() if isinstance(v, ResultField)}
    inputs = optional(task, "inputParameters", dict, "a task of a workflow") or {}
    expressions = inputs.get("params")
    if isinstance(expressions, dict):
        own = f"${{workflow.input.params.{step.reference}."
        ignored = [k for k in literals if not str(expressions.get(k, "")).startswith(own)]
        if ignored:
            raise RunError(
                f"step {step.reference!r}: {ignored[0]} can't be given to a run on Conductor: the "
                f"registered workflow sets it to {expressions.get(ignored[0])!r}",
                fix=f"leave {ignored[0]} out, or change the pipeline and `perago register` it",
            )
    if _result_fields(expressions) != results:
        raise DefinitionDiffersError(
            f"step {step.reference!r} is registered with other result fields than the pipeline has",
            fix="register it again: `perago register`",
        )
    return {**_object(defaults), **literals}


def _named(steps: list[tuple[Any, Any]]) -> str:
    return ", ".join(f"{reference} ({name})" for reference, name in steps) or "none"
