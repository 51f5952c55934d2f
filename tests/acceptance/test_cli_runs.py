"""Runs, listed, inspected and cancelled."""

import json

import pytest

from perago.settings import load_settings
from perago.worker.local_runner import held_by_us


@pytest.fixture
def finished(perago):
    """A run of two tasks that completed."""
    return perago("run", "songs_tasks", "--from", "data", "--json").json["run"]


@pytest.fixture
def waiting(start_waiting):
    """A run that was started and that nobody works on."""
    return start_waiting()


def test_no_runs_yet_says_how_to_start_one(perago):
    assert perago("runs", "--json").json == {"runs": []}
    assert "perago run" in perago("runs").out


def test_runs_are_listed_with_their_progress(perago, finished):
    (run,) = perago("runs", "--json").json["runs"]
    assert run["id"] == finished
    assert (run["status"], run["steps_done"], run["steps_total"]) == ("COMPLETED", 2, 2)
    assert (run["repository"], run["branch"]) == ("songs", "main")
    out = perago("runs").out
    assert finished[:8] in out
    assert "songs/main" in out
    assert "2/2" in out


def test_a_run_shows_its_attempts_by_a_start_of_its_id(perago, finished):
    run = perago("runs", finished[:6], "--json").json
    count, total = run["attempts"]
    assert (count["reference"], count["status"]) == ("songs_count", "COMPLETED")
    assert count["result"] == {"lines": 3}
    assert total["output_ref"] == run["output_ref"]
    out = perago("runs", finished).out
    assert finished in out
    assert total["output_ref"][:12] in out


def test_the_published_commits_name_the_run_and_its_attempts(perago, finished):
    total, count, _imported, _root = perago("history", "--json").json["commits"]
    assert (count["run"], count["task"], count["retry"]) == (finished, "songs.count", 0)
    assert (total["reference"], total["added"]) == ("songs_total", 1)
    assert finished[:8] in perago("history").out


def test_logs_show_every_step_and_what_the_tasks_printed(perago, finished):
    out = perago("runs", finished, "--logs").out
    assert "counting, with an umlaut: ü" in out
    assert out.index("fetch") < out.index("publish")
    run = perago("runs", finished, "--logs", "--json").json
    assert {event["reference"] for event in run["events"]} == {"songs_count", "songs_total"}
    (log,) = [log for log in run["logs"] if log["reference"] == "songs_count"]
    assert log["bytes"] > 0


def test_a_log_line_cut_short_by_a_crash_does_not_hide_the_others(perago, project, finished):
    events = project / ".perago" / "logs" / finished / "events.jsonl"
    with events.open("a") as file:
        file.write('{"at": "2026-')
    assert (
        len(perago("runs", finished, "--logs", "--json").json["events"])
        == len(events.read_text().splitlines()) - 1
    )


def test_a_failed_run_shows_the_reason(perago):
    failed = perago("run", "songs_tasks", "--from", "data", "--param", "count.fail=true", "--json")
    assert failed.code == 1
    run = json.loads(failed.out)["run"]
    assert "was told to fail" in perago("runs", run).out
    assert "was told to fail" in perago("runs", run, "--json").json["attempts"][0]["reason"]


def test_a_run_without_a_runner_says_how_to_resume_it(perago, waiting):
    (run,) = perago("runs", "--json").json["runs"]
    assert (run["status"], run["held"]) == ("RUNNING", False)
    assert f"perago run --resume {waiting[:8]}" in perago("runs").out
    assert f"perago run --resume {waiting[:8]}" in perago("runs", waiting).out


def test_a_run_with_a_runner_does_not(perago, waiting):
    with held_by_us(load_settings(), waiting):
        assert perago("runs", "--json").json["runs"][0]["held"] is True
        assert "--resume" not in perago("runs").out


def test_limit_keeps_the_newest(perago, start_waiting):
    for name in ("first", "second", "third"):
        start_waiting(name)
    listed = perago("runs", "--limit", "2", "--json").json["runs"]
    assert [run["pipeline"] for run in listed] == ["third", "second"]


def test_a_run_that_is_not_there_is_exit_code_3(perago):
    answer = perago("runs", "nothing", "--json")
    assert answer.code == 3
    assert answer.error["code"] == "run_not_found"
    assert perago("cancel", "nothing").code == 3


def test_logs_without_a_run_is_wrong_usage(perago):
    assert perago("runs", "--logs").code == 2


def test_cancel_ends_a_run_and_keeps_the_reason(perago, waiting, queue):
    document = perago("cancel", waiting[:8], "--reason", "wrong data", "--json").json
    assert (document["id"], document["status"]) == (waiting, "TERMINATED")
    assert queue.get(waiting).reason == "wrong data"
    assert "wrong data" in perago("runs", waiting).out


def test_an_ended_run_cannot_be_cancelled(perago, waiting):
    assert "TERMINATED" in perago("cancel", waiting).out
    answer = perago("cancel", waiting)
    assert answer.code == 1
    assert "fix:" in answer.err


@pytest.mark.parametrize("arguments", [("runs",), ("runs", "RUN"), ("history",)])
def test_piped_output_never_cuts_an_id(perago, finished, monkeypatch, arguments):
    monkeypatch.setenv("COLUMNS", "40")
    words = perago(*(finished if word == "RUN" else word for word in arguments)).out
    assert "…" not in words
    shown = finished if "RUN" in arguments else finished[:8]
    assert shown in words
