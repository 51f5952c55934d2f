"""Everything people type to use lakeFS, on a real server."""

import os
import shutil
import sys
import uuid
from pathlib import Path

import lakefs_sdk
import pytest
from lakefs_sdk.client import LakeFSClient

from perago.flow.attempt_directory import AttemptDirectory
from perago.model.attempt import STAGING_PREFIX, Attempt, Execution, new_execution_id
from perago.model.controls import TaskControls
from perago.model.run import RunPlan, StepPlan
from perago.model.workspace import WorkspaceRef
from perago.settings import load_settings
from perago.stack.test_server import start_lakefs
from perago.wiring import fence_file, open_lakefs, open_queue

TASKS = Path(__file__).parents[1] / "support" / "tasks" / "lakefs_tasks.py"
FENCE_KEY, FENCE_ACTION = fence_file()
DAY = 24 * 3600
PIPELINE = "songs_tasks:songs"


@pytest.fixture
def server(project, lakefs_server, monkeypatch):
    """The server that commands with --on lakefs find."""
    _name(lakefs_server, monkeypatch)
    return lakefs_server


def _name(server, monkeypatch):
    """Have commands find it, by the environment."""
    for name, value in server.settings.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repository():
    """A name that no other test uses."""
    return f"cli-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def store(server):
    opened = open_lakefs(load_settings(store="lakefs"))
    yield opened
    opened.close()


@pytest.fixture
def imported(perago, store, repository):
    """What was imported to a repository that somebody else made: its main isn't ours to run on."""
    store.create_repository(repository)
    answer = perago("import", "data", "-r", repository, "--on", "lakefs", "--json")
    assert (answer.code, answer.json["created"]) == (0, None)
    return answer.json["commit"]


@pytest.fixture
def waiting_run(server):
    """Start a run on lakeFS that nobody works on."""
    queue = open_queue(load_settings(store="lakefs"))

    def start(repository, ref):
        workspace = WorkspaceRef(repository=repository, branch="main", ref_type="commit", ref=ref)
        step = StepPlan(
            "count",
            "songs.count",
            "songs_tasks",
            uses_workspace=True,
            params={},
            controls=TaskControls(),
        )
        return queue.start(RunPlan("songs", PIPELINE, (step,)), workspace)

    yield start
    queue.close()


def _files(directory):
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def _on_disk(directory, secret):
    return [path for path, content in _files(directory).items() if secret.encode() in content]


# --- running ------------------------------------------------------------------------------------


def test_a_pipeline_leaves_the_same_on_lakefs_as_embedded(perago, project, server, repository):
    embedded = perago("run", PIPELINE, "--from", "data", "--json")
    answer = perago(
        "run", PIPELINE, "--from", "data", "--repository", repository, "--on", "lakefs", "--json"
    )
    assert (embedded.code, answer.code) == (0, 0), answer.err
    assert perago("export", "main", "one").code == 0
    assert perago("export", "main", "two", "-r", repository, "--on", "lakefs").code == 0
    assert _files(project / "two") == _files(project / "one")
    assert {"lines.txt", "total.txt", "raw/a.txt", "raw/b.txt"} == set(_files(project / "two"))

    messages = [
        [c["message"] for c in perago("history", *where, "--json").json["commits"]]
        for where in ([], ["-r", repository, "--on", "lakefs"])
    ]
    assert messages[0][:3] == messages[1][:3] == ["songs.total", "songs.count", "import of data"]
    assert len(perago("runs", "--json").json["runs"]) == 1
    assert perago("runs", "--on", "lakefs", "--json").json["runs"][0]["repository"] == repository

    said = answer.out + answer.err + perago("runs", "--on", "lakefs").out
    assert server.secret_access_key not in said
    assert _on_disk(project / ".perago", server.secret_access_key) == []


def test_a_run_that_was_killed_is_resumed_there(perago, server, repository, monkeypatch):
    monkeypatch.setenv("PERAGO_FAILPOINTS", "fence2.passed=kill")
    words = ("--from", "data", "--repository", repository, "--on", "lakefs")
    answer = perago("run", PIPELINE, *words)
    assert answer.code == 1
    monkeypatch.delenv("PERAGO_FAILPOINTS")
    line = answer.out.splitlines()[-1].strip()
    assert line.startswith("Continue with: perago run --resume")
    assert line.endswith("--on lakefs")
    resumed = perago(*line.partition("perago ")[2].split(), "--json")
    assert (resumed.code, resumed.json["status"]) == (0, "COMPLETED")
    assert [a["status"] for a in resumed.json["attempts"]] == ["FAILED", "COMPLETED", "COMPLETED"]
    assert perago("cancel", resumed.json["run"], "--on", "lakefs").code != 0, "it is over"


def test_only_branches_of_our_own_are_run_on(perago, imported, repository, store):
    on = ("--repository", repository, "--on", "lakefs", "--json")
    refused = perago("run", PIPELINE, *on)
    assert (refused.code, refused.error["code"]) == (2, "runtime_config")
    assert "not this home's" in refused.error["message"]
    assert "--branch" in refused.error["fix"]
    assert store.head(repository, "main").id == imported

    ours = perago("run", PIPELINE, "--branch", "mine", *on)
    assert (ours.code, ours.json["workspace"]["ref"]) == (0, imported)
    assert store.head(repository, "main").id == imported

    elsewhere = perago("run", PIPELINE, "--branch", "mine", *on, "--home", "another")
    assert (elsewhere.code, elsewhere.error["code"]) == (2, "runtime_config")


def test_a_branch_of_ours_that_somebody_made_anew_is_theirs(perago, imported, repository, store):
    on = ("-r", repository, "--branch", "mine", "--on", "lakefs", "--json")
    ours = perago("run", PIPELINE, *on).json["output_ref"]
    store.delete_branch(repository, "mine")
    store.create_branch(repository, "mine", imported)
    refused = perago("run", PIPELINE, *on)
    assert (refused.code, refused.error["code"]) == (2, "runtime_config")
    assert ours in refused.error["message"]
    assert store.head(repository, "mine").id == imported
    assert perago("run", PIPELINE, "--from-head", *on).code == 0


@pytest.mark.parametrize("made", ["repository", "branch"])
def test_what_an_import_made_can_be_run_on(perago, server, store, repository, made):
    on = ("-r", repository, "--branch", "mine", "--on", "lakefs", "--json")
    if made == "branch":
        store.create_repository(repository)
    answer = perago("import", "data", *on).json
    assert answer["created"] == made
    assert perago("run", PIPELINE, *on).json["workspace"]["ref"] == answer["commit"]


def test_a_new_branch_may_start_anywhere(perago, imported, repository, store):
    on = ("--repository", repository, "--on", "lakefs", "--json")
    perago("import", "data", "--prefix", "more", *on)
    old = perago("run", PIPELINE, "--branch", "old", "--start-at", imported[:12], *on)
    assert (old.code, old.json["workspace"]["ref"]) == (0, imported)
    assert [entry.key for entry in store.list_objects(repository, "old", prefix="more/")] == []


def test_a_missing_repository_with_no_place_to_make_it_is_told(perago, server, monkeypatch):
    monkeypatch.delenv("PERAGO_LAKEFS_STORAGE_NAMESPACE")
    answer = perago("run", PIPELINE, "--repository", "not-there", "--on", "lakefs", "--json")
    assert answer.code == 4
    assert "not-there" in answer.error["message"]
    assert "PERAGO_LAKEFS_STORAGE_NAMESPACE" in answer.error["fix"]


# --- looking and moving data --------------------------------------------------------------------


def test_an_import_is_one_commit_and_a_second_one_none(perago, project, imported, repository):
    on = ("-r", repository, "--on", "lakefs", "--json")
    assert perago("import", "data", *on).json["commit"] is None
    (project / "data" / "raw" / "b.txt").unlink()
    (project / "data" / "c.txt").write_text("new")
    again = perago("import", "data", *on).json
    assert (again["parent"], again["added"], again["changed"], again["removed"]) == (
        imported,
        1,
        0,
        1,
    )
    assert perago("diff", "main~", "main", *on).json["differences"] == [
        {"key": "c.txt", "kind": "added", "bytes_before": None, "bytes_after": 3},
        {"key": "raw/b.txt", "kind": "removed", "bytes_before": 6, "bytes_after": None},
    ]
    newest = perago("history", *on).json["commits"][0]
    assert (newest["added"], newest["changed"], newest["removed"]) == (1, 0, 1)


def test_an_import_to_a_new_branch_starts_at_the_default_one(
    perago, project, imported, repository, store
):
    (project / "data" / "c.txt").write_text("new")
    on = ("-r", repository, "--on", "lakefs", "--json")
    answer = perago("import", "data", "--branch", "side", *on).json
    assert (answer["created"], answer["parent"]) == ("branch", imported)
    assert store.head(repository, "main").id == imported


def test_what_isnt_there_is_named(perago, imported, repository):
    on = ("--on", "lakefs", "--json")
    missing = perago("history", "-r", "not-there", *on)
    assert (missing.code, missing.error["code"]) == (3, "repository_not_found")
    commit = perago("export", "0123456789", "out", "-r", repository, *on)
    assert (commit.code, commit.error["code"]) == (3, "commit_not_found")


# --- the fence ----------------------------------------------------------------------------------


def test_the_fence_is_a_commit_of_its_own_once_and_proven(perago, imported, repository, store):
    on = (repository, "--json")
    missing = perago("fence", "probe", *on)
    assert (missing.code, missing.json["state"]) == (1, "missing")

    installed = perago("fence", "install", *on).json
    assert (installed["outcome"], installed["commit"]) == ("installed", installed["head"])
    (changed,) = store.changed_keys(repository, imported, installed["commit"])
    assert changed == (FENCE_KEY, "added")
    assert perago("fence", "probe", *on).json["state"] == "enforced"
    assert perago("fence", "probe", *on).code == 0

    again = perago("fence", "install", *on).json
    assert (again["outcome"], again["commit"]) == ("present", None)
    assert store.head(repository, "main").id == installed["commit"]
    newest = perago("history", "-r", repository, "--on", "lakefs", "--json").json["commits"][0]
    assert newest["message"] == "install the perago fence"
    assert list(store.branches(repository, prefix=STAGING_PREFIX)) == []


def test_the_fence_and_the_doctor_are_about_the_repositorys_default_branch(
    perago, store, repository
):
    store.create_repository(repository, default_branch="trunk")
    assert perago("fence", "install", repository, "--json").json["branch"] == "trunk"
    assert perago("fence", "probe", repository, "--json").json["branch"] == "trunk"
    looked = perago("doctor", "-r", repository, "--on", "lakefs", "--json")
    (branch,) = [one for one in looked.json["checks"] if one["name"] == "branch"]
    assert (looked.code, branch["detail"]) == (0, "trunk, nothing uncommitted")


@pytest.mark.usefixtures("imported")
def test_another_version_of_the_fence_is_told_and_replaced(perago, repository, server):
    older = FENCE_ACTION.replace(b"name: perago fence", b"name: an older fence")
    _upload_by_somebody_else(server, repository, FENCE_KEY, older)
    probed = perago("fence", "probe", repository, "--json")
    assert (probed.code, probed.json["state"]) == (1, "different")
    assert perago("fence", "install", repository, "--json").json["outcome"] == "replaced"
    assert perago("fence", "probe", repository).code == 0


def _upload_by_somebody_else(server, repository, key, content):
    client = LakeFSClient(
        lakefs_sdk.Configuration(
            host=f"{server.endpoint}/api/v1",
            username=server.access_key_id,
            password=server.secret_access_key,
        )
    )
    client.objects_api.upload_object(repository, "main", key, content=content)
    client.commits_api.commit(
        repository, "main", lakefs_sdk.CommitCreation(message="by somebody else")
    )


def test_the_fence_waits_for_the_run_that_writes_the_branch(
    perago, imported, repository, waiting_run, store
):
    run = waiting_run(repository, imported)
    answer = perago("fence", "install", repository, "--json")
    assert (answer.code, answer.error["code"]) == (4, "branch_busy")
    assert f"`perago cancel {run} --on lakefs`" in answer.error["fix"]
    assert store.head(repository, "main").id == imported
    assert perago("cancel", run, "--on", "lakefs").code == 0
    assert perago("fence", "install", repository).code == 0


def test_people_can_import_where_the_fence_is(perago, project, imported, repository):
    perago("fence", "install", repository)
    (project / "data" / "c.txt").write_text("new")
    answer = perago("import", "data", "-r", repository, "--on", "lakefs", "--json")
    assert (answer.code, answer.json["added"], answer.json["removed"]) == (0, 1, 0)
    assert perago("fence", "probe", repository).code == 0


def test_a_task_can_neither_remove_nor_change_the_fence(perago, project, imported, repository):
    shutil.copy(TASKS, project / "lakefs_tasks.py")
    sys.modules.pop("lakefs_tasks", None)
    perago("fence", "install", repository)
    on = ("--repository", repository, "--branch", "mine", "--on", "lakefs", "--json")
    wiped = perago("run", "lakefs_tasks:wiping", *on)
    assert wiped.code == 0, wiped.err
    assert wiped.json["attempts"][0]["output"]["result"]["saw"] == ["raw/a.txt", "raw/b.txt"]
    assert perago("fence", "probe", repository, "--branch", "mine").code == 0

    disarmed = perago("run", "lakefs_tasks:disarming", *on)
    assert disarmed.code == 1
    assert "can't change the repository's own actions" in disarmed.json["attempts"][0]["reason"]
    assert perago("fence", "probe", repository, "--branch", "mine").code == 0


def test_where_actions_are_switched_off_auto_warns_once_and_cas_refuses(
    perago, project, lakefs_binaries, repository, monkeypatch
):
    config = {"actions": {"enabled": False}}
    with start_lakefs(project / "server", config=config) as server:
        _name(server, monkeypatch)
        perago("import", "data", "-r", repository, "--on", "lakefs")
        assert perago("fence", "install", repository).code == 0
        probed = perago("fence", "probe", repository, "--json")
        assert (probed.code, probed.json["state"]) == (1, "switched off")

        on = ("--repository", repository, "--branch", "mine", "--on", "lakefs", "--json")
        soft = perago("run", PIPELINE, *on)
        assert soft.code == 0
        warnings = [line for line in soft.err.splitlines() if "soft fence only" in line]
        assert len(warnings) == 1, "two tasks, one warning"
        assert "doesn't run actions" in warnings[0]

        monkeypatch.setenv("PERAGO_PUBLISH_FENCE", "cas")
        head = soft.json["output_ref"]
        strict = perago("run", PIPELINE, *on)
        assert (strict.code, strict.json["output_ref"]) == (1, head)
        assert "PERAGO_PUBLISH_FENCE=cas" in strict.json["attempts"][0]["reason"]


# --- cleaning up --------------------------------------------------------------------------------


def test_gc_spares_what_may_be_alive_elsewhere(perago, imported, repository, store):
    young = f"{STAGING_PREFIX}import-exec-{new_execution_id()}"
    began = f"{int((_now(store, repository) - 8 * DAY) * 1000):012x}"
    old = f"{STAGING_PREFIX}import-exec-{began}{'0' * 20}"
    for name in (young, old):
        store.create_branch(repository, name, imported, hidden=True)

    longer = perago("gc", "--orphans-after", "9d", "--on", "lakefs", "--json").json
    assert f"{repository}/{old}" in longer["too_young"]

    would = perago("gc", "--dry-run", "--on", "lakefs", "--json").json
    assert f"{repository}/{old}" in would["staging_branches"]
    done = perago("gc", "--on", "lakefs", "--json").json
    assert f"{repository}/{old}" in done["staging_branches"]
    assert f"{repository}/{young}" in done["too_young"]
    names = [branch.name for branch in store.branches(repository, prefix=STAGING_PREFIX)]
    assert names == [young]
    assert f"{repository}/{young}" in perago("gc", "--on", "lakefs").out, "it is told"


def _now(store, repository):
    return store.head(repository, "main").created_at


def test_gc_removes_what_a_dead_attempt_of_this_machine_left(perago, imported, repository, store):
    settings = load_settings(store="lakefs")
    execution = Execution.begin(Attempt("run", "count", 1, 0, "task", 0, "songs.count"))
    workspace = WorkspaceRef(repository=repository, branch="main", ref_type="commit", ref=imported)
    directory = AttemptDirectory.create(settings.attempts, execution, workspace)
    store.create_branch(repository, execution.staging_branch, imported, hidden=True)

    assert perago("gc", "--on", "lakefs", "--json").json["directories"] == [], "it is alive"
    os.close(directory.lock)
    assert perago("gc", "--json").json["directories"] == [], "the embedded store's are others"
    done = perago("gc", "--on", "lakefs", "--json").json
    assert done["directories"] == [str(directory.path)]
    assert f"{repository}/{execution.staging_branch}" in done["staging_branches"]
    assert list(store.branches(repository, prefix=execution.staging_branch)) == []


def test_gc_cuts_the_object_cache_to_its_limit(perago, imported, repository, monkeypatch):
    on = ("--on", "lakefs", "--json")
    assert perago("export", "main", "out", "-r", repository, *on).code == 0
    kept = perago("gc", *on).json["cache"]
    assert (kept["removed_bytes"], kept["kept_bytes"] > 0) == (0, True)
    monkeypatch.setenv("PERAGO_CACHE_BYTES", "0")
    would = perago("gc", "--dry-run", *on).json["cache"]
    assert (would["removed_bytes"], would["kept_bytes"]) == (kept["kept_bytes"], 0)
    assert perago("gc", *on).json["cache"] == would
