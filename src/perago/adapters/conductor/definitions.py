"""Conductor's TaskDef and WorkflowDef JSON: of our tasks and pipelines, and as registered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from pydantic import PydanticUserError
from pydantic.json_schema import models_json_schema
from pydantic_core import PydanticUndefined, to_jsonable_python

from perago.adapters.conductor.client import ConductorClient
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.responses import document
from perago.declare.wire_json import wire_fields
from perago.errors import OrchestratorRefusedError, TaskDefinitionError
from perago.model.run import ResultField
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from perago.adapters.conductor.client import ConductorConfig
    from perago.declare.pipeline import Pipeline, PipelineStep
    from perago.declare.task import Task


_NO_LEASE_SECONDS = 365 * 24 * 3600
"""The response time-out of a task without one: Conductor refuses 0, and its default is an hour."""
_WORKFLOW_WORKSPACE = "${workflow.input.workspace}"


def task_definition(task: Task[..., Any, Any]) -> dict[str, object]:
    """Conductor's TaskDef of a task. Raises TaskDefinitionError if a model has no JSON schema."""
    retry, timeout, limits = task.controls.retry, task.controls.timeout, task.controls.limits
    definition = {
        "name": task.name,
        "description": task.description,
        "ownerEmail": task.owner_email,
        "inputKeys": ["workspace", "params"] if task.workspace else ["params"],
        "outputKeys": ["workspace", "result"] if task.workspace else ["result"],
        "retryCount": retry.count,
        "retryLogic": retry.logic,
        "retryDelaySeconds": retry.delay_seconds,
        "maxRetryDelaySeconds": retry.max_delay_seconds,
        "backoffJitterMs": retry.jitter_ms,
        "backoffScaleFactor": 1,
        "timeoutPolicy": timeout.policy,
        "timeoutSeconds": timeout.seconds,
        "responseTimeoutSeconds": timeout.response_seconds or timeout.seconds or _NO_LEASE_SECONDS,
        "pollTimeoutSeconds": timeout.poll_seconds,
        "totalTimeoutSeconds": timeout.total_seconds,
        "concurrentExecLimit": limits.concurrent_exec_limit,
        "rateLimitFrequencyInSeconds": limits.rate_limit_frequency_in_seconds,
        "rateLimitPerFrequency": limits.rate_limit_per_frequency,
        "inputSchema": _schema(task, "input", "params", task.params_model),
        "outputSchema": _schema(task, "output", "result", task.result_model),
    }
    return {name: value for name, value in definition.items() if value is not None}


def workflow_definition(pipeline: Pipeline) -> dict[str, object]:
    """Conductor's WorkflowDef of a pipeline: its steps one after the other, nothing in parallel.

    The workflow's input is ``{workspace, params: {reference: {field: value}}}``. Conductor fills in
    ``params`` from the template only as a whole, so a start sends all of it or none.
    """
    workspace = _WORKFLOW_WORKSPACE
    tasks = []
    for step in pipeline.steps:
        inputs: dict[str, object] = {"params": _params_expression(step)}
        if step.task.workspace:
            inputs["workspace"] = workspace
            workspace = f"${{{step.reference}.output.workspace}}"
        tasks.append(
            {
                "name": step.task.name,
                "taskReferenceName": step.reference,
                "type": "SIMPLE",
                "inputParameters": inputs,
            }
        )
    outputs: dict[str, object] = {
        "results": {s.reference: f"${{{s.reference}.output.result}}" for s in pipeline.steps}
    }
    uses_workspace = workspace != _WORKFLOW_WORKSPACE
    if uses_workspace:
        outputs["workspace"] = workspace
    return {
        "name": pipeline.name,
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": pipeline.steps[0].task.owner_email,
        "inputParameters": ["workspace", "params"] if uses_workspace else ["params"],
        "inputTemplate": {"params": {s.reference: _params_template(s) for s in pipeline.steps}},
        "tasks": tasks,
        "outputParameters": outputs,
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 0,
    }


class ConductorDefinitions:
    """The registered definitions: a :class:`~perago.ports.orchestrator.Definitions`."""

    def __init__(self, config: ConductorConfig) -> None:
        self._client = ConductorClient(config)

    def close(self) -> None:
        """Close the connections; using this again connects again."""
        self._client.close()

    def task(self, name: str) -> Mapping[str, Any] | None:
        """The task's definition; None if there is none."""
        found = self._client.find(
            api_path("metadata", "taskdefs", name), doing=f"reading the definition of task {name!r}"
        )
        return None if found is None else document(found, "a task definition")

    def workflow(self, name: str, version: int | None = None) -> Mapping[str, Any] | None:
        """The workflow's definition of that version, or its latest; None if there is none."""
        return fetch_workflow_definition(self._client, name, version)

    def push_task(self, definition: Mapping[str, Any]) -> None:
        """Register a task definition; it replaces the one of the same name."""
        self._client.send(
            "POST",
            api_path("metadata", "taskdefs"),
            [dict(definition)],
            doing=f"registering task {definition['name']!r}",
        )

    def push_workflow(self, definition: Mapping[str, Any]) -> None:
        """Register a workflow definition; it replaces the one of the same name and version."""
        doing = f"registering workflow {definition['name']!r}"
        text = self._client.send(
            "PUT", api_path("metadata", "workflow"), [dict(definition)], doing=doing
        )
        refused = _refusals_in(text)
        if refused:
            raise OrchestratorRefusedError(f"{doing}: Conductor refused: {'; '.join(refused)}")


def fetch_workflow_definition(
    client: ConductorClient, name: str, version: int | None
) -> Mapping[str, Any] | None:
    """A workflow definition, of that version or the latest; None if there is none."""
    chosen = {} if version is None else {"version": version}
    found = client.find(
        api_path("metadata", "workflow", name, **chosen),
        doing=f"reading the definition of workflow {name!r}",
    )
    return None if found is None else document(found, "a workflow definition")


def _schema(
    task: Task[..., Any, Any], side: str, key: str, model: type[BaseModel]
) -> dict[str, object]:
    """A SchemaDef for one side of the task, workspace included."""
    mode: Literal["validation", "serialization"] = (
        "validation" if side == "input" else "serialization"
    )
    models: dict[str, type[BaseModel]] = {"workspace": WorkspaceRef} if task.workspace else {}
    models[key] = model
    try:
        schemas, definitions = models_json_schema([(m, mode) for m in models.values()])
    except PydanticUserError as error:
        raise TaskDefinitionError(
            f"{task.location}: task {task.name!r}: {model.__name__} has no JSON schema: "
            f"{error.message}",
            fix=f"use only types in {model.__name__} that have a JSON schema",
        ) from None
    if side == "input" and task.strict_params:
        definitions = {"$defs": {k: _closed(v) for k, v in definitions["$defs"].items()}}
    return {
        "name": f"{task.name}.{side}",
        "version": 1,
        "type": "JSON",
        "data": {
            "type": "object",
            "properties": {name: schemas[m, mode] for name, m in models.items()},
            "required": list(models),
            "additionalProperties": False,
            **definitions,
        },
    }


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a model, closed to fields that it doesn't name."""
    return schema | {"additionalProperties": False} if "properties" in schema else schema


def _params_expression(step: PipelineStep) -> object:
    # One object where possible: a field that the workflow's input leaves out then stays absent and
    # gets the model's default. An expression for the field alone would turn it into null.
    own = f"workflow.input.params.{step.reference}"
    if not _result_fields(step):
        return f"${{{own}}}"
    return {
        name: _result_expression(value)
        if isinstance(value := step.params.get(name), ResultField)
        else f"${{{own}.{name}}}"
        for name in _filled_fields(step)
    }


def _params_template(step: PipelineStep) -> dict[str, object]:
    taken = _result_fields(step)
    given = {name: value for name, value in step.params.items() if name not in taken}
    if not taken:
        return given
    defaults = {
        name: to_jsonable_python(field.default)
        for name, field in wire_fields(step.task.params_model).items()
        if name not in taken and field.default is not PydanticUndefined
    }
    return {**defaults, **given}


def _filled_fields(step: PipelineStep) -> list[str]:
    """All fields but those with a default factory that aren't given: no expression can call it."""
    return [
        name
        for name, field in wire_fields(step.task.params_model).items()
        if name in step.params or field.default_factory is None
    ]


def _result_fields(step: PipelineStep) -> set[str]:
    return {name for name, value in step.params.items() if isinstance(value, ResultField)}


def _result_expression(field: ResultField) -> str:
    return f"${{{'.'.join((field.reference, 'output', 'result', *field.path))}}}"


def _refusals_in(text: str) -> list[str]:
    """The errors in the response to a bulk request, whose status is 200 nevertheless."""
    try:
        response = json.loads(text)
    except ValueError:
        response = text
    errors = document(response, "the response to a bulk request").get("bulkErrorResults")
    return [str(error) for error in errors.values()] if isinstance(errors, dict) else []
