"""Tasks and pipelines as Conductor reads them."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from perago import (
    ExecutionLimits,
    RetryPolicy,
    TaskControls,
    TaskDefinitionError,
    TimeoutPolicy,
    WorkspaceSpec,
    pipeline,
    task,
)
from perago.adapters.conductor.definitions import task_definition, workflow_definition

OWNER = "data@example.com"


class Song(BaseModel):
    title: str


class IngestParams(BaseModel):
    source: str = "radio"
    songs: list[Song] = []


class IngestResult(BaseModel):
    rows: int


class CleanParams(BaseModel):
    rows: int
    min_seconds: float = 30.0
    tags: list[str] = Field(default_factory=list)


@task(
    name="defs.ingest",
    owner_email=OWNER,
    workspace=WorkspaceSpec(prefix="songs"),
    controls=TaskControls(
        retry=RetryPolicy(
            count=5, logic="LINEAR_BACKOFF", delay_seconds=7, max_delay_seconds=70, jitter_ms=250
        ),
        timeout=TimeoutPolicy(
            policy="RETRY", seconds=900, response_seconds=120, poll_seconds=30, total_seconds=3600
        ),
        limits=ExecutionLimits(
            concurrent_exec_limit=2, rate_limit_frequency_in_seconds=60, rate_limit_per_frequency=9
        ),
    ),
)
def ingest(ws: Path, params: IngestParams) -> IngestResult:
    """Bring the songs in."""
    return IngestResult(rows=0)


@task(name="defs.clean", owner_email=OWNER, workspace=WorkspaceSpec(prefix="songs"))
def clean(ws: Path, params: CleanParams) -> IngestResult:
    return IngestResult(rows=0)


@task(name="defs.notify", owner_email=OWNER)
def notify(params: CleanParams) -> IngestResult:
    return IngestResult(rows=0)


def test_a_task_definition_spreads_the_controls_over_conductors_fields():
    definition = task_definition(ingest)
    schemas = {definition.pop("inputSchema")["name"], definition.pop("outputSchema")["name"]}
    assert schemas == {"defs.ingest.input", "defs.ingest.output"}
    assert definition == {
        "name": "defs.ingest",
        "description": "Bring the songs in.",
        "ownerEmail": OWNER,
        "inputKeys": ["workspace", "params"],
        "outputKeys": ["workspace", "result"],
        "retryCount": 5,
        "retryLogic": "LINEAR_BACKOFF",
        "retryDelaySeconds": 7,
        "maxRetryDelaySeconds": 70,
        "backoffJitterMs": 250,
        "backoffScaleFactor": 1,
        "timeoutPolicy": "RETRY",
        "timeoutSeconds": 900,
        "responseTimeoutSeconds": 120,
        "pollTimeoutSeconds": 30,
        "totalTimeoutSeconds": 3600,
        "concurrentExecLimit": 2,
        "rateLimitFrequencyInSeconds": 60,
        "rateLimitPerFrequency": 9,
    }


def test_what_is_not_declared_is_left_out():
    definition = task_definition(notify)
    assert not {"description", "concurrentExecLimit", "rateLimitPerFrequency"} & set(definition)
    assert definition["inputKeys"] == ["params"]
    assert definition["outputKeys"] == ["result"]


def test_a_task_without_a_lease_still_has_a_response_time_out_conductor_accepts():
    @task(
        name="defs.unleased",
        owner_email=OWNER,
        controls=TaskControls(timeout=TimeoutPolicy(response_seconds=0)),
    )
    def unleased(params: IngestParams) -> IngestResult:
        return IngestResult(rows=0)

    assert task_definition(unleased)["responseTimeoutSeconds"] >= 24 * 3600


def test_schemas_describe_the_whole_input_and_resolve_their_own_references():
    schema = task_definition(ingest)["inputSchema"]
    assert (schema["type"], schema["version"]) == ("JSON", 1)
    data = schema["data"]
    assert data["required"] == ["workspace", "params"]
    defined = data["$defs"]
    assert set(defined) == {"IngestParams", "Song", "WorkspaceRef"}
    assert data["properties"]["params"] == {"$ref": "#/$defs/IngestParams"}
    assert defined["WorkspaceRef"]["additionalProperties"] is False


def test_a_model_without_a_json_schema_is_refused_by_name():
    class Opaque(BaseModel, arbitrary_types_allowed=True):
        handle: memoryview

    @task(name="defs.opaque", owner_email=OWNER)
    def opaque(params: Opaque) -> IngestResult:
        return IngestResult(rows=0)

    with pytest.raises(TaskDefinitionError, match="Opaque has no JSON schema"):
        task_definition(opaque)


def test_a_pipeline_becomes_a_serial_workflow_that_hands_the_workspace_on():
    steps = [ingest.with_params(source="tape"), notify, clean.with_params(rows=ingest.result.rows)]
    definition = workflow_definition(pipeline("defs", steps))
    assert definition == {
        "name": "defs",
        "version": 1,
        "schemaVersion": 2,
        "ownerEmail": OWNER,
        "inputParameters": ["workspace", "params"],
        "inputTemplate": {
            "params": {
                "defs_ingest": {"source": "tape"},
                "defs_notify": {},
                "defs_clean": {"min_seconds": 30.0},
            }
        },
        "tasks": [
            {
                "name": "defs.ingest",
                "taskReferenceName": "defs_ingest",
                "type": "SIMPLE",
                "inputParameters": {
                    "workspace": "${workflow.input.workspace}",
                    "params": "${workflow.input.params.defs_ingest}",
                },
            },
            {
                "name": "defs.notify",
                "taskReferenceName": "defs_notify",
                "type": "SIMPLE",
                "inputParameters": {"params": "${workflow.input.params.defs_notify}"},
            },
            {
                "name": "defs.clean",
                "taskReferenceName": "defs_clean",
                "type": "SIMPLE",
                "inputParameters": {
                    "workspace": "${defs_ingest.output.workspace}",
                    "params": {
                        "rows": "${defs_ingest.output.result.rows}",
                        "min_seconds": "${workflow.input.params.defs_clean.min_seconds}",
                    },
                },
            },
        ],
        "outputParameters": {
            "workspace": "${defs_clean.output.workspace}",
            "results": {
                "defs_ingest": "${defs_ingest.output.result}",
                "defs_notify": "${defs_notify.output.result}",
                "defs_clean": "${defs_clean.output.result}",
            },
        },
        "timeoutPolicy": "ALERT_ONLY",
        "timeoutSeconds": 0,
    }


def test_a_pipeline_without_a_workspace_asks_for_none():
    definition = workflow_definition(pipeline("defs", [notify.with_params(rows=1)]))
    assert definition["inputParameters"] == ["params"]
    assert "workspace" not in definition["outputParameters"]


def test_definitions_are_json():
    for definition in (task_definition(ingest), workflow_definition(pipeline("defs", [ingest]))):
        assert json.loads(json.dumps(definition, allow_nan=False)) == definition


@task(name="defs.strict", owner_email=OWNER, strict_params=True)
def strict(params: IngestParams) -> IngestResult:
    return IngestResult(rows=len(params.songs))


def test_strict_params_leave_no_room_for_fields_that_no_model_has_at_any_level():
    schemas = task_definition(strict)["inputSchema"]["data"]["$defs"]
    assert {name: one["additionalProperties"] for name, one in schemas.items()} == {
        "IngestParams": False,
        "Song": False,
    }
    open_ones = task_definition(ingest)["inputSchema"]["data"]["$defs"]["IngestParams"]
    assert "additionalProperties" not in open_ones
