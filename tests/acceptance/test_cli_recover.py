"""After a run that stopped, one command goes on from the branch as it is now."""

import pytest


@pytest.fixture
def stopped(perago, project):
    """A run whose input was wrong, and the commit by which a person put that right."""
    (project / "bad").mkdir()
    (project / "bad" / "readme.txt").write_text("no raw files")
    failed = perago("run", "songs_tasks", "--from", "bad", "--param", "count.fail=false", "--json")
    assert failed.json["status"] == "FAILED"
    right = perago("import", "data", "-r", "songs", "--json").json["commit"]
    return failed.json, right


def test_a_run_that_stopped_names_the_command_that_goes_on(perago, stopped):
    run, _ = stopped
    refused = perago("run", "songs_tasks", "--json")
    assert (refused.code, refused.error["code"]) == (4, "publish_fence")
    assert f"`perago recover {run['run']}`" in refused.error["fix"]


def test_it_says_what_was_left_behind_and_starts_nothing_if_so_told(perago, stopped, queue):
    run, right = stopped
    looked = perago("recover", run["run"][:8], "--dry-run", "--json").json
    assert (looked["recovered"], looked["status"]) == (run["run"], "FAILED")
    assert (looked["accepted"], looked["head"]) == (run["output_ref"], right)
    assert [commit["message"] for commit in looked["since"]] == ["import of data"]
    assert looked["run"] is None
    out = perago("recover", run["run"], "--dry-run").out
    assert f"accepted commit is {run['output_ref'][:12]}\n" in out
    assert f"is at {right[:12]}: " in out
    assert "import of data" in out
    assert len(queue.runs()) == 1


def test_the_same_pipeline_runs_from_the_head_with_the_same_params(perago, stopped):
    run, right = stopped
    answer = perago("recover", run["run"], "--json")
    assert (answer.code, answer.json["run"]["status"]) == (0, "COMPLETED")
    assert answer.json["run"]["workspace"]["ref"] == right
    assert answer.json["run"]["target"] == "songs_tasks:songs"
    assert [c["message"] for c in perago("history", "--json").json["commits"]][:2] == [
        "songs.total",
        "songs.count",
    ]


def test_people_see_what_it_leaves_before_it_starts(perago, stopped):
    run, right = stopped
    answer = perago("recover", run["run"])
    assert answer.code == 0
    assert f"is at {right[:12]}: " in answer.err
    assert "COMPLETED" in answer.out


def test_a_run_that_needs_no_recovery_is_left_alone(perago, start_waiting):
    waiting = start_waiting()
    active = perago("recover", waiting, "--json")
    assert (active.code, active.error["code"]) == (4, "branch_busy")
    assert f"`perago cancel {waiting}`" in active.error["fix"]
    done = perago("run", "songs_tasks", "--from", "data", "--json").json["run"]
    completed = perago("recover", done, "--json")
    assert (completed.code, completed.error["code"]) == (1, "run")


def test_register_is_for_conductor(perago):
    assert perago("run", "songs_tasks", "--register").code == 2
    without = perago("register", "songs_tasks", "--json")
    assert (without.code, without.error["code"]) == (2, "runtime_config")
    assert "CONDUCTOR_SERVER_URL" in without.error["message"]


def test_a_stack_that_isnt_up_is_told(perago):
    answer = perago("runs", "--on", "stack", "--json")
    assert (answer.code, answer.error["fix"].startswith("`perago stack up`")) == (2, True)
