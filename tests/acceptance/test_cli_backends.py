"""Where a command works is said once, and every command it proposes finds the same place."""

from contextlib import closing

import pytest

from perago.model.controls import TaskControls
from perago.model.run import RunPlan, StepPlan
from perago.settings import load_settings
from perago.wiring import open_queue

STEP = StepPlan(
    "count", "songs.count", "songs_tasks", uses_workspace=False, params={}, controls=TaskControls()
)
LAKEFS_COMMANDS = [
    ["run", "songs_tasks:songs"],
    ["demo"],
    ["history"],
    ["diff", "main~", "main"],
    ["import", "data"],
    ["export", "main", "out"],
    ["gc"],
    ["runs"],
    ["cancel", "1"],
]


@pytest.mark.parametrize("words", LAKEFS_COMMANDS, ids=lambda words: words[0])
def test_without_a_server_each_command_on_lakefs_says_what_isnt_set(perago, words):
    answer = perago(*words, "--on", "lakefs", "--json")
    assert answer.code == 2
    assert "LAKECTL_SERVER_ENDPOINT_URL" in answer.error["message"]
    assert "`perago stack up`" in answer.error["fix"]
    assert "PERAGO_STACK" in answer.error["fix"]


@pytest.fixture
def name_server(monkeypatch):
    """Name a lakeFS, which needn't be there: what is kept about it is kept here."""

    def name(address):
        monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", address)
        monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "secret")

    return name


@pytest.mark.parametrize(
    "words",
    [["run", "songs_tasks:songs"], ["register", "songs_tasks"], ["runs"], ["cancel", "1"], ["gc"]],
    ids=lambda words: words[0],
)
def test_without_a_conductor_each_command_there_says_what_isnt_set(perago, words, name_server):
    name_server("http://lakefs.example")
    answer = perago(*words, "--on", "conductor", "--json")
    assert answer.code == 2
    assert "CONDUCTOR_SERVER_URL is not set" in answer.error["message"]


def test_on_conductor_a_run_to_resume_has_to_be_named(perago, monkeypatch):
    monkeypatch.setenv("CONDUCTOR_SERVER_URL", "http://conductor.example/api")
    answer = perago("run", "--resume", "--on", "conductor")
    assert (answer.code, "name the RUN" in answer.err) == (2, True)


def test_the_setting_says_it_for_every_command(perago, monkeypatch):
    monkeypatch.setenv("PERAGO_STORE", "lakefs")
    assert "LAKECTL_SERVER_ENDPOINT_URL" in perago("history", "--json").error["message"]
    assert perago("history", "--on", "embedded", "--json").error["code"] == "repository_not_found"


def test_the_runs_of_the_two_stores_are_kept_apart(perago, start_waiting, name_server):
    name_server("http://lakefs.example")
    run = start_waiting()
    assert [one["id"] for one in perago("runs", "--json").json["runs"]] == [run]
    assert perago("runs", "--on", "lakefs", "--json").json["runs"] == []
    assert perago("cancel", run, "--on", "lakefs", "--json").error["code"] == "run_not_found"
    assert perago("runs", run, "--on", "embedded", "--json").json["id"] == run


def test_the_runs_and_attempts_of_two_servers_are_kept_apart(perago, project, name_server):
    name_server("http://one.example/api/v1/")
    one = load_settings(store="lakefs")
    with closing(open_queue(one)) as queue:
        run = queue.start(RunPlan("songs", "songs_tasks:songs", (STEP,)), None)
    name_server("http://one.example")
    assert [each["id"] for each in perago("runs", "--on", "lakefs", "--json").json["runs"]] == [run]

    name_server("http://two.example")
    assert perago("runs", "--on", "lakefs", "--json").json["runs"] == []
    resumed = perago("run", "--resume", run, "--on", "lakefs", "--json")
    assert resumed.error["code"] == "run_not_found"
    two = load_settings(store="lakefs")
    assert one.attempts.parent != two.attempts.parent
    rooted = [
        s.model_copy(update={"workspace_root": project / "work"}).attempts for s in (one, two)
    ]
    assert rooted[0] != rooted[1]


def test_where_nothing_ran_yet_the_proposal_is_for_the_same_store(perago, name_server):
    name_server("http://lakefs.example")
    out = perago("runs", "--on", "lakefs").out
    assert "`perago run module:pipeline --on lakefs`" in out
    assert "`perago run module:pipeline`" in perago("runs").out


def test_doctor_tells_a_missing_server_once_and_looks_at_the_rest(perago):
    answer = perago("doctor", "--on", "lakefs", "--json")
    failed = [one["name"] for one in answer.json["checks"] if one["verdict"] == "fail"]
    assert (answer.code, failed) == (1, ["settings"])


def test_doctor_makes_a_finding_of_whatever_keeps_it_from_going_on(perago, project, name_server):
    name_server("not an address")
    answer = perago("doctor", "--on", "lakefs", "--json")
    (failed,) = [one for one in answer.json["checks"] if one["verdict"] == "fail"]
    assert (answer.code, failed["name"]) == (1, "settings")
    assert "is not the address of a server" in failed["detail"]


def test_a_file_without_certificates_is_told_by_its_name(perago, project, name_server, monkeypatch):
    name_server("https://lakefs.example")
    monkeypatch.setenv("PERAGO_LAKEFS_CA_FILE", "ca.pem")
    absent = perago("history", "--on", "lakefs", "--json").error["message"]
    assert absent == "PERAGO_LAKEFS_CA_FILE=ca.pem: there is no such file"
    (project / "ca.pem").write_text("no PEM")
    empty = perago("history", "--on", "lakefs", "--json").error["message"]
    assert empty == "PERAGO_LAKEFS_CA_FILE=ca.pem: there is no certificate in it"


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
    assert "exists already" in answer.error["message"]
