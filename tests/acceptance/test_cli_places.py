"""Where a command works is said once, and every command it proposes finds the same place."""

import pytest

LAKEFS_COMMANDS = [
    ["run", "songs_tasks:songs"],
    ["demo"],
    ["history"],
    ["diff", "main~", "main"],
    ["import", "data"],
    ["export", "main", "out"],
    ["gc"],
]


@pytest.mark.parametrize("words", LAKEFS_COMMANDS, ids=lambda words: words[0])
def test_without_a_server_each_command_on_lakefs_says_what_isnt_set(perago, words):
    answer = perago(*words, "--on", "lakefs", "--json")
    assert answer.code == 2
    assert "LAKECTL_SERVER_ENDPOINT_URL" in answer.error["message"]
    assert "`perago stack up`" in answer.error["fix"]


def test_the_setting_says_it_for_every_command(perago, monkeypatch):
    monkeypatch.setenv("PERAGO_STORE", "lakefs")
    assert "LAKECTL_SERVER_ENDPOINT_URL" in perago("history", "--json").error["message"]
    assert perago("history", "--on", "embedded", "--json").error["code"] == "repository_not_found"


def test_the_runs_of_the_two_stores_are_kept_apart(perago, start_waiting):
    run = start_waiting()
    assert [one["id"] for one in perago("runs", "--json").json["runs"]] == [run]
    assert perago("runs", "--on", "lakefs", "--json").json["runs"] == []
    assert perago("cancel", run, "--on", "lakefs", "--json").error["code"] == "run_not_found"
    assert perago("runs", run, "--on", "embedded", "--json").json["id"] == run


def test_what_an_error_proposes_to_type_finds_the_same_place(perago, project):
    (project / "my home").mkdir()
    answer = perago("export", "nowhere", "out", "--on", "embedded", "--home", "my home", "--json")
    assert answer.error["code"] == "repository_not_found"
    assert "`perago import --on embedded --home 'my home'`" in answer.error["fix"]


def test_a_command_that_takes_neither_is_proposed_as_it_is(perago):
    fix = perago("history", "--on", "lakefs", "--home", "here", "--json").error["fix"]
    assert "`perago stack up`" in fix


def test_a_store_that_verifies_itself_is_told_of(perago):
    answer = perago("verify", "--on", "lakefs", "--json")
    assert answer.code == 2
    assert "nothing to verify on lakeFS" in answer.error["message"]


def test_gc_keeps_no_commits_for_lakefs(perago):
    answer = perago("gc", "--on", "lakefs", "--keep", "1d")
    assert answer.code == 2
    assert "lakeFS collects its own" in answer.err


def test_a_new_branch_starts_at_the_ref_that_is_named(perago, store):
    first = perago("import", "data", "-r", "songs", "--json").json["commit"]
    perago("import", "data", "-r", "songs", "--prefix", "more")
    answer = perago("run", "songs_tasks:songs", "--branch", "dev", "--start-at", "main~", "--json")
    assert answer.code == 0
    assert answer.json["workspace"]["ref"] == first


def test_a_branch_that_has_begun_cant_start_elsewhere(perago):
    perago("import", "data", "-r", "songs")
    answer = perago("run", "songs_tasks:songs", "--start-at", "main~", "--json")
    assert answer.code == 2
    assert "is there already" in answer.error["message"]
