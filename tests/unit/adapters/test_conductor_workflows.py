"""Workflows as runs, and a plan as the input of the workflow that is registered for it."""

import pytest
from pydantic import BaseModel

from perago import pipeline, task
from perago.adapters.conductor.definitions import task_definition, workflow_definition
from perago.adapters.conductor.workflows import (
    idempotency_key_of,
    restart_input,
    run_of,
    workflow_input,
)
from perago.errors import DefinitionDiffersError, OrchestratorError, RunError
from perago.model.controls import TaskControls
from perago.model.run import ResultField, RunStatus
from perago.model.workspace import WorkspaceRef

PLACE = WorkspaceRef(repository="songs", branch="main", ref_type="commit", ref="A")


class CountParams(BaseModel):
    year: int = 1999
    limit: int = 10


class CountResult(BaseModel):
    songs: int


class RankParams(BaseModel):
    songs: int
    by: str = "plays"


@task(name="albums.count", owner_email="a@example.com")
def count(params: CountParams) -> CountResult:
    return CountResult(songs=params.year)


@task(name="albums.rank", owner_email="a@example.com")
def rank(params: RankParams) -> CountResult:
    return CountResult(songs=params.songs)


songs = pipeline("songs", [count.with_params(limit=5), rank.with_params(songs=count.result.songs)])
DEFINITION = workflow_definition(songs)


def started(params=None, workspace=PLACE):
    return workflow_input(songs.plan(params), workspace, DEFINITION, key="m-1")


def workflow(**changed):
    tasks = [
        {**one, "taskDefinition": task_definition(step.task)}
        for one, step in zip(DEFINITION["tasks"], songs.steps, strict=True)
    ]
    return {
        "workflowId": "w-1",
        "workflowName": "songs",
        "status": "RUNNING",
        "createTime": 1_000,
        "updateTime": 2_000,
        "input": started(),
        "tasks": [],
        "workflowDefinition": {**DEFINITION, "tasks": tasks},
        **changed,
    }


# --- starting -------------------------------------------------------------------------------------


def test_the_input_has_all_params_for_conductor_fills_in_none_of_a_part():
    # a step that takes a result is handed each field by name, and one left out would be null
    assert started()["params"] == {"albums_count": {"limit": 5}, "albums_rank": {"by": "plays"}}


def test_what_is_given_to_a_run_stands_in_its_input():
    given = started({"count": {"year": 1980}, "rank": {"by": "likes"}})
    assert given["params"] == {
        "albums_count": {"limit": 5, "year": 1980},
        "albums_rank": {"by": "likes"},
    }


def test_the_input_has_the_workspace_and_who_started_it():
    assert started()["workspace"] == PLACE.model_dump()
    assert idempotency_key_of({"input": started()}) == "m-1"
    assert "workspace" not in started(workspace=None)


def test_a_result_field_that_is_given_a_value_is_refused_for_nobody_would_hear_of_it():
    with pytest.raises(RunError, match="songs can't be given"):
        started({"rank": {"songs": 3}})


@pytest.mark.parametrize(
    "tasks",
    [
        DEFINITION["tasks"][:1],
        DEFINITION["tasks"][::-1],
        [{**DEFINITION["tasks"][0], "name": "albums.other"}, DEFINITION["tasks"][1]],
        [DEFINITION["tasks"][0], {**DEFINITION["tasks"][1], "inputParameters": {}}],
    ],
)
def test_a_plan_is_not_started_as_something_else(tasks):
    with pytest.raises(DefinitionDiffersError, match="registered with other") as differs:
        workflow_input(songs.plan(), PLACE, {**DEFINITION, "tasks": tasks}, key="m")
    assert "perago register" in differs.value.fix


# --- reading --------------------------------------------------------------------------------------


def test_a_run_tells_its_plan_as_far_as_conductor_knows_it():
    run = run_of(workflow())
    assert (run.plan.name, run.plan.target) == ("songs", songs.target)
    first, second = run.plan.steps
    assert (first.reference, first.task_name, first.module) == ("albums_count", "albums.count", "")
    assert first.params == {"limit": 5}
    assert second.params == {"by": "plays", "songs": ResultField("albums_count", ("songs",))}
    assert first.controls == TaskControls()


def test_a_run_that_was_read_can_be_started_again_as_it_was():
    again = workflow_input(run_of(workflow()).plan, PLACE, DEFINITION, key="m-1")
    assert again == started()


def test_another_run_like_one_has_its_whole_input_but_where_it_starts():
    old = workflow(input={**started(), "note": "of somebody else's"})
    elsewhere = PLACE.model_copy(update={"ref": "b" * 64})
    again = restart_input(old, elsewhere, key="m-2")
    assert again["workspace"]["ref"] == "b" * 64
    assert idempotency_key_of({"input": again}) == "m-2"
    kept = {name: again[name] for name in ("params", "note")}
    assert kept == {"params": started()["params"], "note": "of somebody else's"}


def test_times_and_state_are_ours():
    run = run_of(workflow(status="TIMED_OUT", reasonForIncompletion="too slow"))
    assert (run.created_at, run.updated_at) == (1.0, 2.0)
    assert (run.status, run.reason) == (RunStatus.TIMED_OUT, "too slow")


@pytest.mark.parametrize("given", [{}, {"workspace": "main"}, {"workspace": {"branch": "main"}}])
def test_a_workflow_of_somebody_elses_is_a_run_without_a_workspace(given):
    run = run_of(workflow(input=given))
    assert run.workspace is None
    assert run.plan.target == ""


def test_controls_that_can_not_be_ours_are_told_as_the_default_ones():
    tasks = [{**DEFINITION["tasks"][0], "taskDefinition": {"retryCount": 99}}]
    run = run_of(workflow(workflowDefinition={**DEFINITION, "tasks": tasks}))
    assert run.plan.steps[0].controls == TaskControls()


@pytest.mark.parametrize(
    "raw", [None, [], {}, workflow(status="ASLEEP"), workflow(workflowId=3), workflow(tasks=[3])]
)
def test_what_is_no_workflow_is_an_error(raw):
    with pytest.raises(OrchestratorError, match="Conductor sent"):
        run_of(raw)
