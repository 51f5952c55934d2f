"""Modules of tasks: made, checked and extracted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import perago as installed

BROKEN = sorted((Path(__file__).parents[1] / "unit" / "declare" / "broken").glob("[a-z]*.py"))


# --- check --------------------------------------------------------------------------------------


def test_check_lists_the_tasks_and_pipelines_of_a_module(perago):
    document = perago("check", "songs_tasks", "--json").json
    assert document["ok"] is True
    (checked,) = document["checked"]
    assert [task["name"] for task in checked["tasks"]] == ["songs.count", "songs.total"]
    assert checked["pipelines"][0]["steps"] == ["songs_count", "songs_total"]
    out = perago("check", "songs_tasks:songs").out
    assert "✓ songs_tasks:songs" in out
    assert "songs_count → songs_total" in out


def test_broken_modules_give_different_errors_that_each_name_a_fix(perago):
    answer = perago("check", *BROKEN, "--json")
    assert answer.code == 2
    errors = [checked["error"] for checked in answer.json["checked"]]
    assert len(errors) >= 10
    assert len({error["message"] for error in errors}) == len(errors)
    assert len({error["fix"] for error in errors}) >= 10
    assert all(error["fix"] for error in errors)


def test_check_looks_at_every_module_whatever_the_first_one_says(perago):
    answer = perago("check", BROKEN[0], "songs_tasks")
    assert answer.code == 2
    assert "2 targets checked, 1 wrong" in answer.out
    assert "task songs.count" in answer.out
    assert "fix: " in answer.out


def test_check_warns_without_failing(perago, project):
    source = (project / "songs_tasks.py").read_text()
    warned = source.replace("songs.", "warned.").replace(
        'prefix="/", pre=[require_glob("raw/*.txt")]',
        'prefix="data", pre=[require_glob("data/*.txt")]',
    )
    (project / "warned_tasks.py").write_text(warned)
    answer = perago("check", "warned_tasks.py")
    assert answer.code == 0
    assert "warning: " in answer.out
    assert "repeats the prefix" in answer.out


def test_check_reads_the_modules_from_pyproject(perago, project):
    answer = perago("check")
    assert answer.code == 2
    assert "[tool.perago]" in answer.err
    (project / "pyproject.toml").write_text('[tool.perago]\nmodules = ["songs_tasks"]\n')
    assert perago("check").code == 0


def test_a_module_that_is_not_there_is_an_error_like_any_other(perago):
    (checked,) = perago("check", "no_such_module", "--json").json["checked"]
    assert "no_such_module" in checked["error"]["message"]


def test_a_module_without_tasks_is_an_error(perago, project):
    (project / "empty_module.py").write_text("")
    answer = perago("check", "empty_module")
    assert answer.code == 2
    assert "declares no task" in answer.out


# --- extract ------------------------------------------------------------------------------------


def test_extract_prints_the_definitions(perago):
    document = perago("extract", "songs_tasks", "--json").json
    assert [task["name"] for task in document["tasks"]] == ["songs.count", "songs.total"]
    assert [workflow["name"] for workflow in document["workflows"]] == ["songs"]
    assert json.loads(perago("extract", "songs_tasks:songs").out) == document


def test_extract_writes_one_file_per_definition(perago, project):
    document = perago("extract", "songs_tasks", "--out", "definitions", "--json").json
    written = sorted(path.name for path in (project / "definitions").iterdir())
    assert written == ["songs.count.task.json", "songs.total.task.json", "songs.workflow.json"]
    assert sorted(document["files"]) == [f"definitions/{name}" for name in written]
    saved = json.loads((project / "definitions" / "songs.workflow.json").read_text())
    assert saved == document["workflows"][0]


def test_extract_of_a_broken_module_writes_nothing(perago, project):
    answer = perago("extract", "songs_tasks", BROKEN[0], "--out", "definitions")
    assert answer.code == 2
    assert not (project / "definitions").exists()


# --- init ---------------------------------------------------------------------------------------


def test_a_new_project_passes_its_own_test(perago, project):
    document = perago("init", "my-songs", "--json").json
    assert document["package"] == "my_songs"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=project / "my-songs",
        env=os.environ | {"PYTHONPATH": str(Path(installed.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout


def test_a_new_project_runs_as_its_readme_says(perago, project, monkeypatch):
    perago("init", "your-songs")
    monkeypatch.chdir(project / "your-songs")
    assert "perago run your_songs.tasks --from data" in Path("README.md").read_text()
    assert perago("check").code == 0
    run = perago("run", "your_songs.tasks", "--from", "data", "--json")
    assert run.code == 0, run.err
    assert perago("export", "main", "out").code == 0
    assert json.loads(Path("out/songs/summary.json").read_text())["songs"] == 3


def test_init_says_what_to_do_next(perago):
    answer = perago("init", "project", "--name", "some-songs")
    assert "cd project" in answer.out
    assert "-m pytest" in answer.out
    assert "run some_songs.tasks --from data" in answer.out


def test_no_placeholder_is_left_in_a_new_project(perago, project):
    for name in perago("init", "my-songs", "--json").json["files"]:
        assert "{{" not in (project / "my-songs" / name).read_text()


def test_init_never_writes_over_files(perago, project):
    (project / "mine").mkdir()
    (project / "mine" / "notes").write_text("keep")
    answer = perago("init", "mine")
    assert answer.code == 2
    assert "not an empty directory" in answer.err
    assert [path.name for path in (project / "mine").iterdir()] == ["notes"]


@pytest.mark.parametrize("name", ["1songs", "Songs", "my songs", "class", "json", "perago", "a.b"])
def test_init_refuses_a_name_that_gives_no_package(perago, project, name):
    answer = perago("init", "here", "--name", name)
    assert answer.code == 2
    assert repr(name) in answer.err
    assert not (project / "here").exists()
