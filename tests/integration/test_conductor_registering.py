"""Definitions as the code declares them, on a real Conductor: pushed, compared, refused."""

import uuid
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import (
    ExecutionLimits,
    RetryPolicy,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    pipeline,
    task,
)
from perago.adapters.conductor.definitions import task_definition, workflow_definition
from perago.errors import OrchestratorRefusedError
from perago.operations.registration import DefinitionState, compare, differences, register


class CleanParams(BaseModel):
    year: int = 1999
    names: list[str] = []


class Songs(BaseModel):
    songs: int


class CountParams(BaseModel):
    songs: int
    by: str = "plays"


@task(
    name="registering.clean",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
    controls=TaskControls(
        retry=RetryPolicy(
            count=2, logic="LINEAR_BACKOFF", delay_seconds=5, max_delay_seconds=50, jitter_ms=100
        ),
        timeout=TimeoutPolicy(
            policy="RETRY", seconds=60, response_seconds=30, poll_seconds=20, total_seconds=600
        ),
        limits=ExecutionLimits(
            concurrent_exec_limit=2, rate_limit_frequency_in_seconds=10, rate_limit_per_frequency=5
        ),
    ),
)
def clean(workspace: Path, params: CleanParams) -> Songs:
    """Clean the songs."""
    return Songs(songs=params.year)


@task(
    name="registering.count",
    owner_email="data@example.com",
    controls=TaskControls(timeout=TimeoutPolicy(response_seconds=0)),
)
def count(params: CountParams) -> Songs:
    return Songs(songs=params.songs)


chain = pipeline("registering", [clean, count.with_params(songs=clean.result.songs)])


@pytest.fixture
def definitions(conductor_bench):
    return conductor_bench.definitions


@pytest.fixture
def declared():
    """The TaskDefs and the WorkflowDef, under names that no other test has."""
    mark = uuid.uuid4().hex[:8]
    tasks = [task_definition(one) for one in chain.tasks]
    workflow = workflow_definition(chain)
    for one in (*tasks, *workflow["tasks"], workflow):
        one["name"] = f"{one['name']}_{mark}"
    return tasks, [workflow]


def states(found):
    return [one.state for one in found]


def test_what_was_pushed_reads_back_as_the_same(definitions, declared):
    assert states(compare(definitions, *declared)) == [DefinitionState.MISSING] * 3
    done = register(definitions, *declared)
    assert [(one.kind, one.pushed) for one in done] == [
        ("task", True),
        ("task", True),
        ("workflow", True),
    ]
    assert states(compare(definitions, *declared)) == [DefinitionState.SAME] * 3
    assert not any(one.pushed for one in register(definitions, *declared))


def test_what_the_code_changed_since_is_told_field_by_field_and_pushed(definitions, declared):
    register(definitions, *declared)
    tasks, (workflow,) = declared
    del tasks[0]["concurrentExecLimit"]
    tasks[0]["retryCount"] = 7
    workflow["tasks"][0]["inputParameters"] = {"params": "${workflow.input.params}"}

    changed, same, rewired = compare(definitions, *declared)

    assert {one.field: (one.ours, one.theirs) for one in changed.differences} == {
        "retryCount": (7, 2),
        "concurrentExecLimit": (None, 2),
    }
    assert same.state is DefinitionState.SAME
    (difference,) = rewired.differences
    assert difference.field == "tasks.registering_clean.inputParameters"
    register(definitions, *declared)
    assert states(compare(definitions, *declared)) == [DefinitionState.SAME] * 3


def test_what_somebody_changed_at_the_server_is_told_and_set_right(definitions, declared):
    register(definitions, *declared)
    tasks, _ = declared
    definitions.push_task(tasks[1] | {"retryCount": 0, "isolationGroupId": "theirs"})
    (problem,) = differences(definitions, tasks)
    assert tasks[1]["name"] in problem.message
    assert "retryCount is 0, not 3" in problem.message
    assert "isolationGroupId is 'theirs', not None" in problem.message
    register(definitions, tasks)
    assert differences(definitions, tasks) == []


def test_a_refusal_is_told_in_the_servers_own_words(definitions, declared):
    (bad, _), (workflow,) = declared
    bad["responseTimeoutSeconds"] = 61
    with pytest.raises(OrchestratorRefusedError, match="must be less than timeoutSeconds"):
        register(definitions, [bad])
    workflow["tasks"][1]["taskReferenceName"] = workflow["tasks"][0]["taskReferenceName"]
    with pytest.raises(OrchestratorRefusedError, match="should be unique"):
        register(definitions, [], [workflow])
    assert definitions.workflow(workflow["name"]) is None


def test_the_latest_version_of_a_workflow_is_found_where_none_is_named(definitions, declared):
    _, (workflow,) = declared
    definitions.push_workflow(workflow)
    definitions.push_workflow(workflow | {"version": 2})
    assert definitions.workflow(workflow["name"])["version"] == 2
    assert definitions.workflow(workflow["name"], 1)["version"] == 1
    assert definitions.workflow(workflow["name"], 3) is None
