"""Pipelines: what may be chained, how results flow, and the plan of a run."""

from pathlib import Path

import pytest
from pydantic import BaseModel, Field, model_validator

from perago import TaskDefinitionError, WorkspaceSpec, pipeline, task
from perago.errors import RuntimeConfigError
from perago.model.run import ResultField, resolve_params

SPEC = WorkspaceSpec(prefix="songs")


class IngestParams(BaseModel):
    source: str


class Span(BaseModel):
    first: int
    last: int


class IngestResult(BaseModel):
    rows: int
    label: str = ""
    span: Span = Span(first=0, last=0)


class CleanParams(BaseModel):
    min_seconds: float = 30.0
    rows: int = Field(default=0, ge=0)
    title: str = ""
    span: Span | None = None


class CleanResult(BaseModel):
    songs: int


@task(name="hits.ingest", owner_email="a@example.com", workspace=SPEC)
def ingest(ws: Path, params: IngestParams) -> IngestResult:
    return IngestResult(rows=1)


@task(name="hits.clean", owner_email="b@example.com", workspace=SPEC, strict_params=True)
def clean(ws: Path, params: CleanParams) -> CleanResult:
    return CleanResult(songs=1)


@task(name="hits-notify", owner_email="c@example.com")
def tell_people(params: CleanParams) -> CleanResult:
    return CleanResult(songs=1)


def test_results_flow_into_later_steps_params():
    songs = pipeline("songs", [ingest, clean.with_params(rows=ingest.result.rows, min_seconds=5)])
    first, second = songs.plan({"ingest": {"source": "radio"}}).steps
    assert first.params == {"source": "radio"}
    assert second.params == {"rows": ResultField("hits_ingest", ("rows",)), "min_seconds": 5}
    resolved = resolve_params(second, {"hits_ingest": {"rows": 7}})
    assert clean.parse_params(resolved) == CleanParams(rows=7, min_seconds=5)


def test_a_whole_result_and_a_nested_field_may_flow_too():
    steps = [ingest, clean.with_params(span=ingest.result.span, rows=ingest.result.span.last)]
    placed = pipeline("songs", steps).steps[1].params
    assert placed == {
        "span": ResultField("hits_ingest", ("span",)),
        "rows": ResultField("hits_ingest", ("span", "last")),
    }


def test_a_plan_names_what_the_orchestrator_needs():
    plan = pipeline("songs", [clean, tell_people]).plan()
    assert (plan.name, plan.target) == ("songs", f"{__name__}:songs")
    assert [step.reference for step in plan.steps] == ["hits_clean", "hits_notify"]
    assert [step.task_name for step in plan.steps] == ["hits.clean", "hits-notify"]
    assert [step.uses_workspace for step in plan.steps] == [True, False]
    assert {step.module for step in plan.steps} == {__name__}
    assert plan.steps[0].controls is clean.controls


def test_a_task_may_stand_twice_under_two_references():
    first = clean.with_params(min_seconds=1)
    songs = pipeline("songs", [first, clean, tell_people.with_params(rows=first.result.songs)])
    assert [step.reference for step in songs.steps] == ["hits_clean", "hits_clean_2", "hits_notify"]
    assert songs.steps[2].params == {"rows": ResultField("hits_clean", ("songs",))}


def test_a_chain_longer_than_two_of_the_same_task_keeps_counting():
    references = [step.reference for step in pipeline("songs", [clean, clean, clean]).steps]
    assert references == ["hits_clean", "hits_clean_2", "hits_clean_3"]


@pytest.mark.parametrize(
    ("declare", "message", "fix"),
    [
        (lambda: pipeline("songs", []), "has no steps", "[first_task, …]"),
        (lambda: pipeline("my songs", [clean]), "name can't be 'my songs'", "letters, digits"),
        (lambda: pipeline("songs", [print]), "neither a task nor", "put @task(…)"),
        (lambda: clean.with_params(min_second=1), "no field 'min_second'", "mean 'min_seconds'?"),
        (lambda: clean.with_params(rows=-1), "rows is -1: input should be greater", "correct rows"),
        (lambda: clean.with_params(rows=object()), "isn't JSON", "a number, text"),
        (lambda: clean.with_params(rows=float("nan")), "isn't JSON", "a number, text"),
        (lambda: clean.with_params(span={"first": 1, "last": 2, "x": 3}), "span.x", "span.x"),
        (lambda: ingest.result.row, "IngestResult", "did you mean 'rows'?"),
        (lambda: ingest.result.rows.more, "has no field 'more'", "use ingest.result.rows itself"),
        (
            lambda: clean.with_params(title=ingest.result.rows),
            "a int never fits str",
            "change the type of CleanParams.title",
        ),
        (
            lambda: clean.with_params(rows=ingest.result.span),
            "a Span never fits int",
            "another result field",
        ),
        (
            lambda: pipeline("songs", [clean.with_params(rows=ingest.result.rows), ingest]),
            "isn't known before hits_clean runs",
            "move hits_ingest before hits_clean",
        ),
        (
            lambda: pipeline("songs", [clean.with_params(rows=clean.result.songs)]),
            "hits_clean.rows takes clean.result.songs, its own result",
            "the result of an earlier step",
        ),
        (
            lambda: pipeline("songs", [clean.with_params(rows=ingest.result.rows)]),
            "isn't a step of this pipeline",
            "before hits_clean",
        ),
        (
            lambda: pipeline(
                "songs", [clean, clean, tell_people.with_params(rows=clean.result.songs)]
            ),
            "is 2 times in this pipeline",
            "first = clean.with_params(…), then first.result.songs",
        ),
    ],
)
def test_a_wrong_pipeline_is_refused_with_its_fix(declare, message, fix):
    with pytest.raises(TaskDefinitionError) as refused:
        declare()
    assert message in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize(("steps", "named"), [(3, "3"), ("clean", "'clean'"), (ingest, "ingest")])
def test_a_pipeline_takes_a_list_of_tasks_and_says_so(steps, named):
    with pytest.raises(TaskDefinitionError) as refused:
        pipeline("p", steps)
    assert "the second argument must be a list of tasks" in refused.value.message
    assert named in refused.value.message
    assert "pipeline('p', [" in refused.value.fix


def test_two_tasks_of_one_name_never_meet_in_a_pipeline():
    @task(name="hits.clean", owner_email="a@example.com")
    def other(params: CleanParams) -> CleanResult:
        return CleanResult(songs=0)

    with pytest.raises(TaskDefinitionError, match="declared twice"):
        pipeline("songs", [clean, other])


def test_references_of_different_tasks_never_collide():
    @task(name="hits_clean", owner_email="a@example.com")
    def other(params: CleanParams) -> CleanResult:
        return CleanResult(songs=0)

    references = [step.reference for step in pipeline("songs", [clean, other]).steps]
    assert references == ["hits_clean", "hits_clean_2"]


@pytest.mark.parametrize("key", ["hits_clean", "hits.clean", "clean"])
def test_a_step_answers_to_its_reference_its_name_and_the_last_part_of_it(key):
    assert pipeline("songs", [ingest, clean]).resolve_step(key).task is clean


def test_a_step_answers_to_its_functions_name():
    assert pipeline("songs", [clean, tell_people]).resolve_step("tell_people").task is tell_people


def test_a_key_that_means_two_steps_is_refused_naming_both():
    with pytest.raises(RuntimeConfigError, match="hits_clean, hits_clean_2"):
        pipeline("songs", [clean, clean]).plan({"clean": {"rows": 1}})


def test_a_key_that_means_no_step_is_refused_naming_the_steps():
    with pytest.raises(RuntimeConfigError) as refused:
        pipeline("songs", [ingest, clean]).plan({"claen": {"rows": 1}})
    assert "did you mean 'clean'?" in refused.value.fix


def test_what_is_given_at_the_start_wins_over_the_declaration():
    steps = [ingest.with_params(source="radio"), clean.with_params(rows=ingest.result.rows)]
    plan = pipeline("songs", steps).plan({"ingest": {"source": "tape"}, "clean": {"rows": "12"}})
    assert plan.steps[0].params == {"source": "tape"}
    assert plan.steps[1].params == {"rows": "12"}


def test_a_missing_param_is_named_the_way_it_is_given_on_the_command_line():
    with pytest.raises(RuntimeConfigError) as refused:
        pipeline("songs", [ingest, clean]).plan()
    assert "ingest.source: missing" in refused.value.message
    assert refused.value.fix == "--param ingest.source=…"


def test_every_bad_param_of_every_step_is_named_at_once():
    with pytest.raises(RuntimeConfigError) as refused:
        pipeline("songs", [ingest, clean, clean]).plan({"hits_clean_2": {"rows": "many"}})
    assert "ingest.source: missing" in refused.value.message
    assert "hits_clean_2.rows is 'many'" in refused.value.message


def test_an_unknown_param_is_refused_even_where_the_task_would_ignore_it():
    with pytest.raises(RuntimeConfigError, match="no field 'sauce'") as refused:
        pipeline("songs", [ingest]).plan({"ingest": {"sauce": "radio"}})
    assert "did you mean 'source'?" in refused.value.fix


class Ordered(BaseModel):
    low: int = 0
    high: int = 10

    @model_validator(mode="after")
    def _check(self):
        if self.low > self.high:
            raise ValueError("low is more than high")
        return self


@task(name="hits.ordered", owner_email="a@example.com")
def ordered(params: Ordered) -> CleanResult:
    return CleanResult(songs=0)


def test_rules_across_fields_are_judged_once_all_of_them_are_known():
    with pytest.raises(RuntimeConfigError, match="low is more than high"):
        pipeline("songs", [ordered]).plan({"ordered": {"low": 11}})
    waiting = pipeline("songs", [clean, ordered.with_params(low=11, high=clean.result.songs)])
    assert waiting.plan().steps[1].params["low"] == 11
