"""Workflow definitions in files, checked for what operators promise."""

import json
import sys

import pytest

FIRST = "${workflow.input.workspace}"
AFTER_COUNT = "${songs_count.output.workspace}"


@pytest.fixture
def extracted(perago, project):
    """A pipeline's definition in a file, and a function that changes it there."""
    perago("extract", "songs_tasks", "--out", "definitions")
    file = project / "definitions" / "songs.workflow.json"

    def change(edit):
        definition = json.loads(file.read_text())
        edit(definition)
        file.write_text(json.dumps(definition))
        return file

    return change


def take_the_input_again(definition):
    definition["tasks"][1]["inputParameters"]["workspace"] = FIRST


def run_side_by_side(definition):
    take_the_input_again(definition)
    tasks = definition["tasks"]
    definition["outputParameters"]["workspace"] = AFTER_COUNT
    fork = {"name": "fork", "taskReferenceName": "fork", "type": "FORK_JOIN"}
    join = {"name": "join", "taskReferenceName": "join", "type": "JOIN"}
    references = [one["taskReferenceName"] for one in tasks]
    forked = {**fork, "forkTasks": [[one] for one in tasks]}
    definition["tasks"] = [forked, {**join, "joinOn": references}]


def test_a_compiled_pipeline_is_safe(perago, extracted):
    file = extracted(lambda _: None)
    answer = perago("check", "--workflow", file)
    assert answer.code == 0
    assert answer.out == f"✓ {file}: workflow songs\n1 target checked, 0 wrong\n"


def test_a_task_that_takes_the_wrong_workspace_is_named_with_the_right_one(perago, extracted):
    file = extracted(take_the_input_again)
    answer = perago("check", "--workflow", file)
    assert answer.code == 2
    assert f"error: songs_total takes {FIRST}, which is older" in answer.out
    assert f"should be: {AFTER_COUNT}" in answer.out
    assert "fix: " in answer.out
    assert "1 target checked, 1 wrong" in answer.out


def test_programs_get_each_problem_as_a_document(perago, extracted):
    answer = perago("check", "--workflow", extracted(take_the_input_again), "--json")
    assert (answer.code, answer.json["ok"]) == (2, False)
    (one,) = answer.json["workflows"]
    assert (one["name"], one["version"]) == ("songs", 1)
    assert one["error"]["code"] == "unsafe_workflow"
    (problem,) = one["problems"]
    assert problem["task"] == "songs_total"
    assert (problem["takes"], problem["should_take"]) == (FIRST, AFTER_COUNT)
    assert problem["message"] == one["error"]["message"]


def test_two_writers_side_by_side_are_refused(perago, extracted):
    answer = perago("check", "--workflow", extracted(run_side_by_side))
    assert answer.code == 2
    assert "at the same time: they are in two branches of the fork fork" in answer.out


def test_modules_tell_which_tasks_only_read(perago, project, extracted, monkeypatch):
    file = extracted(run_side_by_side)
    source = (project / "songs_tasks.py").read_text()
    reading = source.replace('WorkspaceSpec(prefix="/")', "WorkspaceSpec(read_only=True)")
    (project / "songs_tasks.py").write_text(reading)
    monkeypatch.delitem(sys.modules, "songs_tasks")
    assert perago("check", "--workflow", file).code == 2
    answer = perago("check", "songs_tasks", "--workflow", file)
    assert answer.code == 0, answer.out
    assert "✓ songs_tasks\n" in answer.out
    assert "2 targets checked, 0 wrong" in answer.out


def test_modules_listed_in_pyproject_count_too(perago, project, extracted):
    (project / "pyproject.toml").write_text('[tool.perago]\nmodules = ["songs_tasks"]\n')
    document = perago("check", "--workflow", extracted(lambda _: None), "--json").json
    assert [one["target"] for one in document["checked"]] == ["songs_tasks"]


def test_what_extract_prints_can_be_checked_as_it_is(perago, project):
    (project / "all.json").write_text(perago("extract", "songs_tasks").out)
    document = perago("check", "--workflow", "all.json", "--json").json
    assert [one["name"] for one in document["workflows"]] == ["songs"]


def test_workflows_that_call_each_other_are_checked_together(perago, project):
    def called(name):
        return {"name": name, "taskReferenceName": name, "type": "SUB_WORKFLOW"}

    outer = {
        **called("songs"),
        "subWorkflowParam": {"name": "songs"},
        "inputParameters": {"workspace": FIRST},
    }
    (project / "outer.json").write_text(json.dumps({"name": "outer", "tasks": [outer]}))
    (project / "all.json").write_text(perago("extract", "songs_tasks").out)
    alone = perago("check", "--workflow", "outer.json")
    assert alone.code == 2
    assert "another --workflow FILE" in alone.out
    together = perago("check", "--workflow", "outer.json", "--workflow", "all.json")
    assert together.code == 0, together.out


def test_every_workflow_is_looked_at_whatever_the_first_one_is(perago, project, extracted):
    (project / "broken.json").write_text("{")
    (project / "shapeless.json").write_text('{"name": "songs", "tasks": [{}]}')
    (project / "empty.json").write_text("[]")
    safe = extracted(lambda _: None)
    sources = ("broken.json", "shapeless.json", "empty.json", "missing.json", safe)
    answer = perago("check", *(word for one in sources for word in ("--workflow", one)), "--json")
    assert answer.code == 2
    errors = [one["error"] for one in answer.json["workflows"]]
    said = [error and error["message"] for error in errors]
    assert "not JSON" in said[0]
    assert "tasks[0].taskReferenceName is None" in said[1]
    assert "the file has no workflow definition" in said[2]
    assert "No such file" in said[3]
    assert said[4] is None
    assert all(error["fix"] for error in errors if error)


def test_a_name_needs_a_server_to_be_looked_up_on(perago):
    (one,) = perago("check", "--workflow", "songs:1", "--json").json["workflows"]
    assert "CONDUCTOR_SERVER_URL" in one["error"]["message"]
    (one,) = perago("check", "--workflow", "songs:new", "--json").json["workflows"]
    assert "'new' is not a version" in one["error"]["message"]
