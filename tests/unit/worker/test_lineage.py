"""Lineage as a supervisor tells it: the right events, sent aside, and never in the way."""

import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from datetime import UTC, datetime

import pytest
from openlineage.client.serde import Serde
from support.http_servers import LineageReceiver

from perago.model.attempt import Attempt, AttemptStep, Execution, TaskStatus
from perago.model.tables import RuleResult, TableReport
from perago.settings import Settings
from perago.worker import lineage as sending
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    StepStarted,
)
from perago.worker.lineage import (
    LineageEvent,
    LineageObserver,
    Sender,
    Transition,
    dataset_namespace,
    ended,
    learned,
    lineage_observers,
)
from perago.worker.lineage_events import run_event

ATTEMPT = Attempt("wf", "clean", 1, 0, "task-id", 0, "songs.clean", "songs")
EXECUTION = Execution.begin(ATTEMPT)
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BEGUN = LineageEvent(EXECUTION, Transition.START, NOW)

DIRECTORY = {"step": "directory", "repository": "music", "branch": "main", "ref": "a1"}
UPLOAD = {"step": "stage.upload", "seconds": 0.1, "uploaded": 3, "deleted": 1}
PUBLISH = {"step": "publish", "seconds": 0.1, "path": "merged", "ref": "b2", "level": "cas"}


@pytest.fixture(autouse=True)
def _nobody_asks(monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def after(*events):
    known = BEGUN
    for event in events:
        known = learned(known, event)
    return known


def table(phase, *findings):
    """The event that a check of a table leaves in the journal."""
    report = TableReport("clean", findings, rows=5)
    return {"step": "table", "phase": phase, **report.document()}


def as_json(told):
    return json.loads(Serde.to_json(run_event(told, "perago", "lakefs://lake.example")))


def end_of(status, *events, ending=Ending.ACCEPTED, reason=None):
    return as_json(ended(after(*events), AttemptEnded(ATTEMPT, ending, status, reason), NOW))


# --- what is told ---------------------------------------------------------------------------------


def test_an_end_has_the_input_at_its_commit_and_the_output_at_the_published_one():
    event = end_of(TaskStatus.COMPLETED, DIRECTORY | {"prefix": "songs"}, UPLOAD, PUBLISH)
    (read,), (written,) = event["inputs"], event["outputs"]
    assert read["namespace"] == written["namespace"] == "lakefs://lake.example"
    assert read["name"] == written["name"] == "music/songs"
    assert read["facets"]["version"]["datasetVersion"] == "a1"
    assert written["facets"]["version"]["datasetVersion"] == "b2"
    assert written["outputFacets"]["outputStatistics"]["fileCount"] == 3
    assert (event["eventType"], event["eventTime"]) == ("COMPLETE", "2026-01-02T03:04:05.000+00:00")


@pytest.mark.parametrize("prefix", ["/", ""])
def test_a_workspace_without_a_prefix_is_the_whole_repository(prefix):
    assert after(DIRECTORY | {"prefix": prefix}).input.name == "music"


def test_a_task_without_a_workspace_has_neither_input_nor_output():
    event = end_of(TaskStatus.COMPLETED, {"step": "body", "seconds": 0.1})
    assert event["inputs"] == event["outputs"] == []


@pytest.mark.parametrize("path", ["unchanged", "read_only"])
def test_what_changed_nothing_has_no_output(path):
    assert end_of(TaskStatus.COMPLETED, DIRECTORY, PUBLISH | {"path": path})["outputs"] == []


@pytest.mark.parametrize(
    ("ending", "status", "transition"),
    [
        (Ending.ACCEPTED, TaskStatus.COMPLETED, "COMPLETE"),
        (Ending.ACCEPTED, TaskStatus.FAILED, "FAIL"),
        (Ending.ACCEPTED, TaskStatus.FAILED_WITH_TERMINAL_ERROR, "FAIL"),
        (Ending.ACCEPTED, TaskStatus.TIMED_OUT, "FAIL"),
        (Ending.NOT_ACCEPTED, TaskStatus.FAILED, "FAIL"),
        (Ending.NOT_ACCEPTED, TaskStatus.COMPLETED, "ABORT"),
        (Ending.ACCEPTED, TaskStatus.CANCELED, "ABORT"),
        (Ending.LEASE_LOST, None, "ABORT"),
        (Ending.SUPERSEDED, None, "ABORT"),
        (Ending.GIVEN_BACK, None, "ABORT"),
    ],
)
def test_only_what_was_accepted_is_complete_and_has_an_output(ending, status, transition):
    event = end_of(status, DIRECTORY, UPLOAD, PUBLISH, ending=ending)
    assert event["eventType"] == transition
    assert bool(event["outputs"]) is (transition == "COMPLETE")


def test_a_failure_is_told_in_the_words_that_the_orchestrator_gets():
    event = end_of(TaskStatus.FAILED, DIRECTORY, reason="task_failed: no songs today")
    assert event["run"]["facets"]["errorMessage"]["message"] == "task_failed: no songs today"


def test_the_workflow_is_the_parent():
    parent = as_json(BEGUN)["run"]["facets"]["parent"]
    assert parent["job"] == {"namespace": "perago", "name": "songs", "facets": {}}


def test_checks_of_the_input_are_told_with_it():
    check = table("pre", RuleResult("rows", "require_table('raw', rows=1)"))
    (read,) = as_json(after(DIRECTORY, check))["inputs"]
    (found,) = read["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (found["assertion"], found["success"]) == ("require_table('raw', rows=1)", True)


def test_a_broken_rule_is_told_with_a_count_and_no_values_though_nothing_is_published():
    broken = RuleResult("unique", "unique=['id']", ("id",), "2 are twice", 2, ("id=hunter2",))
    event = end_of(
        TaskStatus.FAILED, DIRECTORY, table("post", broken, RuleResult("rows", "rows=1"))
    )
    (written,) = event["outputs"]
    first, second = written["facets"]["dataQualityAssertions"]["assertions"]
    assert (first["assertion"], first["success"]) == ("unique=['id']", False)
    assert first["actual"] == "2 rows break it"
    assert (second["assertion"], second["success"]) == ("rows=1", True)
    assert "version" not in written["facets"]
    assert "hunter2" not in json.dumps(event)


# --- when it is told ------------------------------------------------------------------------------


def test_a_real_attempt_is_told_as_it_begins_and_as_it_ends(attempt_under):
    told = []
    attempt_under(LineageObserver(told.append))
    start, end = told
    assert (start.transition, end.transition) == (Transition.START, Transition.COMPLETE)
    assert start.input == end.input
    assert start.output is None
    assert end.output.name == start.input.name
    assert end.output.commit != start.input.commit
    assert end.files == 1


def test_a_failing_attempt_is_told_with_its_reason(attempt_under):
    told = []
    attempt_under(LineageObserver(told.append), fail=True)
    assert [each.transition for each in told] == [Transition.START, Transition.FAIL]
    assert told[-1].reason.startswith("task_failed: ")


def test_an_attempt_that_died_without_a_word_is_told_too():
    told = []
    watcher = LineageObserver(told.append)
    watcher.observe(AttemptStarted(EXECUTION))
    watcher.observe(
        AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.FAILED, reason="executor_lost: …")
    )
    assert [each.transition for each in told] == [Transition.START, Transition.FAIL]


def test_what_is_still_under_way_at_the_end_is_aborted():
    told = []
    watcher = LineageObserver(told.append)
    watcher.observe(AttemptStarted(EXECUTION))
    watcher.observe(StepStarted(ATTEMPT, AttemptStep.BODY))
    watcher.close()
    assert [each.transition for each in told] == [Transition.START, Transition.ABORT]


def test_what_was_refused_before_it_began_is_not_told():
    told = []
    LineageObserver(told.append).observe(
        AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.FAILED, reason="no such task")
    )
    assert told == []


# --- sending --------------------------------------------------------------------------------------


@pytest.fixture
def patience(monkeypatch):
    """Enough for a machine that has much else to do: importing OpenLineage takes a while."""
    monkeypatch.setattr(sending, "CLOSE_SECONDS", 60.0)


@pytest.fixture
def silent_receiver():
    """Lets everybody in and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _settings(home):
    return Settings(_env_file=None, home=home)


def test_events_arrive_in_order_before_the_end(monkeypatch, tmp_path, patience):
    with LineageReceiver() as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", receiver.address)
        monkeypatch.setenv("OPENLINEAGE_API_KEY", "hunter2")
        monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "music")
        with lineage_observers(_settings(tmp_path)) as (watcher,):
            watcher.observe(AttemptStarted(EXECUTION))
            watcher.observe(AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.COMPLETED))
        assert "OPENLINEAGE__TRANSPORT__TRANSPORTS__DEFAULT_HTTP__URL" not in os.environ
    assert [event["eventType"] for event in receiver.events] == ["START", "COMPLETE"]
    assert {event["job"]["namespace"] for event in receiver.events} == {"music"}
    assert {event["producer"].partition("@")[0] for event in receiver.events} == {
        "pkg:pypi/perago-runtime"
    }
    assert set(receiver.paths) == {"/api/v1/lineage"}
    assert {headers["Authorization"] for headers in receiver.headers} == {"Bearer hunter2"}


def test_a_receiver_that_refuses_is_complained_about_once_without_secrets(
    monkeypatch, tmp_path, patience, capfd
):
    with LineageReceiver(status=401) as receiver:
        monkeypatch.setenv("OPENLINEAGE_URL", f"{receiver.address}/?key=hunter2")
        with lineage_observers(_settings(tmp_path)) as (watcher,):
            watcher.observe(AttemptStarted(EXECUTION))
            watcher.observe(AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.COMPLETED))
    (line,) = capfd.readouterr().err.splitlines()
    assert "status 401" in json.loads(line)["message"]
    assert "hunter2" not in line


def test_a_receiver_that_does_not_answer_slows_no_attempt_and_ends_in_time(
    monkeypatch, silent_receiver
):
    monkeypatch.setenv("OPENLINEAGE_URL", silent_receiver)
    monkeypatch.setattr(sending, "CLOSE_SECONDS", 0.2)
    complaints = []
    sender = Sender("perago", "file", complaints.append)
    began = time.monotonic()
    for _ in range(2 * sending.QUEUE_LENGTH):
        sender.send(BEGUN)
    sender.close()
    assert time.monotonic() - began < 4  # one request alone may take 5 s
    assert complaints == [f"more than {sending.QUEUE_LENGTH} events wait to be sent"]


def test_a_setting_that_is_wrong_costs_the_lineage_and_nothing_else(
    monkeypatch, tmp_path, patience, capfd
):
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "no.such.Transport")
    with lineage_observers(_settings(tmp_path)) as (watcher,):
        watcher.observe(AttemptStarted(EXECUTION))
    (line,) = capfd.readouterr().err.splitlines()
    assert json.loads(line)["message"].startswith("lineage is lost: ")


# --- who asks -------------------------------------------------------------------------------------


def test_nobody_watches_where_nothing_is_set_up(tmp_path):
    with lineage_observers(_settings(tmp_path)) as watchers:
        assert watchers == []


def test_without_the_extra_it_is_said_how_to_get_it(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("OPENLINEAGE_URL", "http://catalogue.example")
    monkeypatch.setattr("perago.worker.lineage.find_spec", lambda _name: None)
    with lineage_observers(_settings(tmp_path)) as watchers:
        assert watchers == []
    assert "perago-runtime[lineage]" in json.loads(capfd.readouterr().err)["fix"]


def test_openlineage_is_not_imported_to_be_ready(tmp_path):
    script = """
        import sys
        import perago.worker.local_runner
        from perago.settings import Settings
        from perago.worker.lineage import lineage_observers

        with lineage_observers(Settings(_env_file=None)):
            print([name for name in sys.modules if name.startswith("openlineage")])
    """
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[]\n"


def test_datasets_are_named_after_their_store(tmp_path):
    embedded = dataset_namespace(_settings(tmp_path))
    assert embedded == f"file://{socket.gethostname()}{tmp_path / 'store'}"
    lakefs = Settings(
        _env_file=None, store="lakefs", LAKECTL_SERVER_ENDPOINT_URL="https://lake.example/api/v1"
    )
    assert dataset_namespace(lakefs) == "lakefs://lake.example"
