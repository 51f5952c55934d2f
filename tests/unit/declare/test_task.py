"""Tasks: calling them, reading params, writing results."""

import datetime as dt
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr

from perago import TaskControls, TaskDefinitionError, WorkspaceSpec, task
from perago.errors import TaskInputError, TaskResultError


class Bounds(BaseModel):
    low: int = 0
    high: int = 10


class CleanParams(BaseModel):
    min_seconds: float = 30.0
    bounds: Bounds = Bounds()
    token: SecretStr = SecretStr("")


class CleanResult(BaseModel):
    songs: int
    share: float = 0.0


@task(name="tunes.clean", owner_email="data@example.com", workspace=WorkspaceSpec(prefix="songs"))
def clean(workspace: Path, params: CleanParams) -> CleanResult:
    """Drop short songs.

    Long songs stay.
    """
    return CleanResult(songs=len(list(workspace.iterdir())))


@task(name="tunes.strict", owner_email="data@example.com", strict_params=True)
def strict(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)


def test_calling_a_task_runs_its_body_so_a_plain_unit_test_works(tmp_path):
    (tmp_path / "a").touch()
    assert clean(tmp_path, CleanParams()) == CleanResult(songs=1)
    assert clean(workspace=tmp_path, params=CleanParams()) == CleanResult(songs=1)


def test_a_task_looks_like_its_function():
    assert clean.__name__ == "clean"
    assert clean.__doc__.startswith("Drop short songs.")
    assert clean.__wrapped__ is clean.body


def test_a_task_knows_its_contract():
    assert (clean.params_model, clean.result_model) == (CleanParams, CleanResult)
    assert (clean.engine, strict.engine) == ("local", None)
    assert clean.description == "Drop short songs."
    assert clean.controls == TaskControls()
    assert clean.module == __name__


def test_params_get_their_defaults_and_ignore_what_they_do_not_know():
    parsed = clean.parse_params({"min_seconds": 5, "unheard_of": True})
    assert parsed == CleanParams(min_seconds=5)


def test_every_bad_param_is_named_with_its_value():
    with pytest.raises(TaskInputError) as refused:
        clean.parse_params({"min_seconds": "long", "bounds": {"low": "x" * 200}})
    message = refused.value.message
    assert "min_seconds is 'long': input should be a valid number" in message
    assert "bounds.low is 'xxx" in message
    assert "…" in message
    assert len(message) < 400
    assert "min_seconds, bounds, token" in refused.value.fix


@pytest.mark.parametrize("raw", [None, [], "text", 3, {"bounds": {1, 2}}])
def test_params_that_are_no_json_object_are_refused(raw):
    with pytest.raises(TaskInputError, match=r"tunes\.clean"):
        clean.parse_params(raw)


def test_a_secret_param_is_never_shown():
    with pytest.raises(TaskInputError) as refused:
        clean.parse_params({"token": ["hunter2"]})
    assert "token is (hidden)" in refused.value.message
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("raw", "path"), [({"extra": 1}, "extra"), ({"bounds": {"lo": 1}}, "bounds.lo")]
)
def test_strict_params_refuse_unknown_fields_at_every_level(raw, path):
    with pytest.raises(TaskInputError, match=f"{path}: unknown field"):
        strict.parse_params(raw)


class Release(BaseModel):
    model_config = ConfigDict(strict=True)

    day: dt.date
    song_id: str = Field(default="", alias="songId")


@task(name="tunes.release", owner_email="data@example.com")
def release(params: Release) -> Release:
    return params


def test_models_that_are_strict_still_read_dates_as_json_carries_them():
    assert release.parse_params({"day": "2024-05-01"}).day == dt.date(2024, 5, 1)


def test_results_go_out_under_the_names_of_their_schema():
    result = Release.model_validate({"day": dt.date(2024, 5, 1), "songId": "a"})
    assert release.dump_result(result) == {"day": "2024-05-01", "songId": "a"}


@pytest.mark.parametrize("value", [None, {"songs": 3}, CleanParams(), 3])
def test_only_the_declared_result_model_is_a_result(value):
    with pytest.raises(TaskResultError) as refused:
        clean.dump_result(value)
    assert "which is not a CleanResult" in refused.value.message
    assert "return CleanResult(…)" in refused.value.fix


class Odd(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="constants")

    value: object = None
    share: float = 0.0


@task(name="tunes.odd", owner_email="data@example.com")
def odd(params: Odd) -> Odd:
    return params


@pytest.mark.parametrize(
    "result", [Odd(share=float("nan")), Odd(share=float("inf")), Odd(value=object())]
)
def test_a_result_that_is_not_json_is_refused(result):
    with pytest.raises(TaskResultError, match="isn't JSON"):
        odd.dump_result(result)


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        ({"name": "a/b"}, "name can't be 'a/b'", "text on one line without '/' and '\\'"),
        ({"name": "a\nb"}, "name can't be 'a\\nb'", "text on one line"),
        ({"name": ".."}, "name can't be '..'", "first a letter, digit or '_'"),
        ({"name": "a "}, "name can't be 'a '", "such as 'songs.clean'"),
        ({"name": ""}, "name can't be ''", "such as 'songs.clean'"),
        ({"owner_email": " "}, "owner_email can't be ' '", "data@example.com"),
        ({"workspace": "songs"}, "workspace can't be 'songs'", "a WorkspaceSpec(…)"),
        ({"controls": 3}, "controls can't be 3", "a TaskControls(…)"),
        ({"retries": 3}, "@task has no argument 'retries'", "known: controls, description"),
    ],
)
def test_a_wrong_argument_of_task_is_refused_with_its_fix(arguments, message, fix):
    with pytest.raises(TaskDefinitionError) as refused:
        task(**{"name": "songs.x", "owner_email": "data@example.com", **arguments})
    assert message in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize("name", ["a", "Songs clean", "_private", "曲.清洗", "songs:clean#2"])
def test_a_task_may_have_any_name_that_conductor_takes_and_a_file_can_have(name):
    @task(name=name, owner_email="the data team")
    def named(params: CleanParams) -> CleanResult:
        return CleanResult(songs=0)

    assert (named.name, named.owner_email) == (name, "the data team")


def test_task_without_parentheses_is_refused():
    with pytest.raises(TaskDefinitionError, match="keyword arguments only"):

        @task
        def bare(params: CleanParams) -> CleanResult:
            return CleanResult(songs=0)
