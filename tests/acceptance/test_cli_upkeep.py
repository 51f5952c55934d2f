"""Cleaning up, verifying, and finding out what is wrong with a machine."""

import os
import sqlite3

import pytest

from perago.flow.attempt_directory import AttemptDirectory
from perago.model.attempt import Attempt, Execution, began_at
from perago.model.workspace import WorkspaceRef
from perago.operations.leftover_gc import ORPHAN_SECONDS, collect_leftovers
from perago.settings import load_settings
from perago.testing.faulty_store import FaultyStore, refuse, unavailable

EXECUTION = Execution.begin(Attempt("run", "count", 1, 0, "task", 0, "songs.count"))


@pytest.fixture
def imported(perago):
    return perago("import", "data", "-r", "songs", "--json").json["commit"]


@pytest.fixture
def attempt(imported, store):
    """An attempt's directory and branch, held by this process."""
    workspace = WorkspaceRef(repository="songs", branch="main", ref_type="commit", ref=imported)
    directory = AttemptDirectory.create(load_settings().attempts, EXECUTION, workspace)
    store.create_branch("songs", EXECUTION.staging_branch, imported, hidden=True)
    return directory


def _die(directory):
    """What the kernel does when the process that holds it is gone."""
    os.close(directory.lock)


def _object(project, content):
    """The file that holds these bytes."""
    objects = (project / ".perago" / "store" / "objects").rglob("*")
    (found,) = [path for path in objects if path.is_file() and path.read_bytes() == content]
    return found


# --- gc -----------------------------------------------------------------------------------------


def test_gc_removes_what_a_dead_attempt_left(perago, store, attempt):
    _die(attempt)
    document = perago("gc", "--json").json
    assert document["directories"] == [str(attempt.path)]
    assert document["staging_branches"] == [f"songs/{EXECUTION.staging_branch}"]
    assert not attempt.path.exists()
    assert [branch.name for branch in store.branches("songs")] == ["main"]


def test_a_dry_run_says_the_same_and_removes_nothing(perago, store, attempt):
    _die(attempt)
    answer = perago("gc", "--dry-run")
    assert "would remove 1 attempt directory, 1 staging branch" in answer.out
    assert str(attempt.path) in answer.out
    assert attempt.path.exists()
    assert perago("gc", "--dry-run", "--json").json["dry_run"] is True
    assert len(list(store.branches("songs"))) == 2


def test_gc_leaves_an_attempt_in_progress_alone(perago, store, attempt):
    assert perago("gc", "--keep", "0s", "--json").json["directories"] == []
    assert attempt.path.exists()
    assert len(list(store.branches("songs"))) == 2
    attempt.remove()


def test_an_old_attempt_in_progress_keeps_its_branch(store, attempt):
    later = began_at(EXECUTION.id) + 10 * ORPHAN_SECONDS
    assert collect_leftovers(store, load_settings().attempts, now=later).branches == ()
    attempt.remove()


def test_a_staging_branch_of_nobody_goes_once_it_is_old_enough(store, imported):
    store.create_branch("songs", EXECUTION.staging_branch, imported, hidden=True)
    (branch,) = store.branches("songs", prefix="perago-staging-")
    attempts = load_settings().attempts
    soon, later = (began_at(EXECUTION.id) + past for past in (60, ORPHAN_SECONDS + 60))
    assert collect_leftovers(store, attempts, now=soon).branches == ()
    assert collect_leftovers(store, attempts, now=later).branches == (("songs", branch.name),)
    assert [left.name for left in store.branches("songs")] == ["main"]


def test_how_old_it_has_to_be_is_for_people_to_say(perago, store, imported):
    store.create_branch("songs", EXECUTION.staging_branch, imported, hidden=True)
    name = f"songs/{EXECUTION.staging_branch}"
    assert perago("gc", "--json").json["too_young"] == [name]
    assert perago("gc", "--orphans-after", "0s", "--json").json["staging_branches"] == [name]
    assert [left.name for left in store.branches("songs")] == ["main"]
    assert perago("gc", "--orphans-after", "soon").code == 2


def test_trouble_with_one_repository_leaves_the_others_to_be_seen_to(store, imported):
    for repository in ("another", "yet-another"):
        root = store.create_repository(repository)
        store.create_branch(repository, EXECUTION.staging_branch, root.id, hidden=True)
    store.create_branch("songs", EXECUTION.staging_branch, imported, hidden=True)
    troubled = FaultyStore(store, {"branches": [unavailable], "delete_branch": [refuse]})
    later = began_at(EXECUTION.id) + ORPHAN_SECONDS + 60
    done = collect_leftovers(troubled, load_settings().attempts, now=later)
    assert done.branches == (("yet-another", EXECUTION.staging_branch),)
    assert done.problems == (
        "another: the store doesn't answer",
        f"songs/{EXECUTION.staging_branch}: the server refused the request",
    )


def test_trouble_with_a_dead_attempts_branch_leaves_its_directory_for_the_next_time(
    perago, store, attempt
):
    _die(attempt)
    troubled = FaultyStore(store, {"delete_branch": [refuse, refuse]})
    now = began_at(EXECUTION.id)
    done = collect_leftovers(troubled, load_settings().attempts, now=now)
    assert (done.directories, done.branches, len(done.problems)) == ((), (), 2)
    assert perago("gc", "--json").json["directories"] == [str(attempt.path)]


def test_gc_frees_bytes_that_no_branch_leads_to(perago, project, imported, store):
    root = store.get_commit("songs", imported).parents[0]
    store.relocate("songs", "main", root, expected_head=imported)
    assert perago("gc", "--json").json["objects"] == 0, "young commits are kept"
    document = perago("gc", "--keep", "0s", "--json").json
    assert (document["objects"], document["bytes"]) == (2, 14)


@pytest.mark.parametrize("period", ["7", "d", "-1d", "soon"])
def test_a_period_that_is_none_is_wrong_usage(perago, period):
    answer = perago("gc", f"--keep={period}")
    assert answer.code == 2
    assert "7d" in answer.err


# --- verify -------------------------------------------------------------------------------------


def test_verify_finds_nothing_in_a_sound_store(perago, imported):
    answer = perago("verify")
    assert answer.code == 0
    assert "nothing missing, nothing corrupt" in answer.out
    document = perago("verify", "--json").json
    assert document["clean"] is True
    assert (document["objects"], document["bytes"]) == (2, 14)


@pytest.mark.damages_store
def test_verify_names_what_is_missing_and_what_is_corrupt(perago, project, imported):
    _object(project, b"one\ntwo\n").unlink()
    damaged = _object(project, b"three\n")
    damaged.chmod(0o644)
    damaged.write_bytes(b"thrEE\n")
    answer = perago("verify")
    assert answer.code == 1
    assert "1 missing, 1 corrupt" in answer.out
    findings = perago("verify", "--json").json["findings"]
    assert {finding["damage"]: finding["affected"] for finding in findings} == {
        "missing": ["songs/main: raw/a.txt"],
        "corrupt": ["songs/main: raw/b.txt"],
    }
    for finding in findings:
        assert finding["affected"][0] in answer.out


# --- doctor -------------------------------------------------------------------------------------


def _verdicts(answer):
    return {check["name"]: check["verdict"] for check in answer.json["checks"]}


def test_doctor_finds_a_healthy_machine_healthy(perago, imported):
    answer = perago("doctor", "--json")
    assert answer.code == 0
    assert set(_verdicts(answer).values()) <= {"ok", "warn"}
    assert "0 failed" in perago("doctor").out


def test_doctor_names_each_setting_with_its_source(perago, project, monkeypatch):
    (project / ".env").write_text("PERAGO_PUBLISH_FENCE=soft\n")
    monkeypatch.setenv("PERAGO_WORKSPACE_ROOT", str(project / "work"))
    answer = perago("doctor", "--json", "--home", "elsewhere")
    shown = {one["name"]: (one["value"], one["source"]) for one in answer.json["settings"]}
    assert {name: said for name, said in shown.items() if said[1] != "default"} == {
        "PERAGO_HOME": ("elsewhere", "command line"),
        "PERAGO_WORKSPACE_ROOT": (str(project / "work"), "environment"),
        "PERAGO_PUBLISH_FENCE": ("soft", ".env"),
    }
    assert shown["PERAGO_FAILPOINTS"] == ("", "default")


def test_doctor_shows_that_a_secret_is_set_and_not_what_it_is(perago, project, monkeypatch):
    (project / ".env").write_text("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY=in-the-file\n")
    for value, source in (("in-the-file", ".env"), ("in-the-environment", "environment")):
        if source == "environment":
            monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", value)
        answer = perago("doctor", "--json")
        (shown,) = [s for s in answer.json["settings"] if s["name"].endswith("SECRET_ACCESS_KEY")]
        assert (shown["value"], shown["source"]) == ("**********", source)
        assert value not in answer.out + answer.err


def test_doctor_has_nothing_to_try_in_a_repository_of_the_embedded_store(perago, imported):
    answer = perago("doctor", "--repository", "songs")
    assert answer.code == 2
    assert "--on lakefs" in answer.err


def test_doctor_fails_with_the_fix_where_home_cannot_be_written(perago, project):
    (project / "file").write_text("in the way")
    answer = perago("doctor", "--home", "file/below")
    assert answer.code == 1
    assert "PERAGO_HOME" in answer.out


@pytest.mark.damages_store
def test_doctor_fails_on_a_store_of_another_format(perago, project, imported):
    database = sqlite3.connect(project / ".perago" / "store" / "store.db")
    with database:
        database.execute("UPDATE meta SET value = '999' WHERE name = 'format'")
    database.close()
    answer = perago("doctor", "--json")
    assert answer.code == 1
    assert _verdicts(answer)["store"] == "fail"


def test_doctor_warns_of_dead_attempts_with_the_command_that_helps(perago, attempt):
    _die(attempt)
    answer = perago("doctor")
    assert answer.code == 0
    assert "perago gc" in answer.out


def test_doctor_warns_of_a_run_without_a_runner(perago, start_waiting):
    run = start_waiting()
    answer = perago("doctor", "--json")
    (found,) = [check for check in answer.json["checks"] if check["name"] == "runs"]
    assert found["verdict"] == "warn"
    assert f"perago run --resume {run[:8]}" in found["fix"]


def test_doctor_warns_of_injected_faults(perago, monkeypatch):
    monkeypatch.setenv("PERAGO_FAILPOINTS", "publish.sent=kill")
    assert _verdicts(perago("doctor", "--json"))["failpoints"] == "warn"
