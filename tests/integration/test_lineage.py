"""Lineage as a catalogue gets it: of whole runs, of attempts that die, and of Spark's own jobs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest
from support.http_servers import LineageReceiver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PERAGO = Path(sys.executable).with_name("perago")
TASKS = Path(__file__).parents[1] / "support" / "tasks"

INGEST, CLEAN = "songs.lineage_ingest", "songs.lineage_clean"


class Run(NamedTuple):
    record: dict
    receiver: object
    said: str


def run(receiver, home, target, *arguments, **environment):
    """`perago run` in a process of its own, with its lineage sent there."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE")}
    ended = subprocess.run(
        [PERAGO, "run", target, "--json", *arguments],
        cwd=home,
        env=ours
        | {
            "PYTHONPATH": str(TASKS),
            "NO_PROXY": "127.0.0.1",
            "OPENLINEAGE_URL": receiver.address,
            "PERAGO_SPARK_CONF_spark_driver_memory": "768m",
        }
        | environment,
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return Run(json.loads(ended.stdout), receiver, ended.stderr)


@pytest.fixture(scope="module")
def songs(tmp_path_factory):
    """A run of a task on files and one on Spark, with Spark's own listener."""
    home = tmp_path_factory.mktemp("songs")
    with LineageReceiver() as receiver:
        yield run(receiver, home, "lineage_tasks:songs", PERAGO_SPARK_LINEAGE="on")


def _version(dataset):
    return dataset["facets"]["version"]["datasetVersion"]


def _told(events):
    return [event["eventType"] for event in events]


def test_each_attempt_starts_and_completes_on_versions_of_one_dataset(songs):
    written, read = (
        songs.receiver.of("songs.lineage_ingest"),
        songs.receiver.of(CLEAN),
    )
    assert _told(written) == _told(read) == ["START", "COMPLETE"]
    (output,), (input_,) = written[-1]["outputs"], read[0]["inputs"]
    assert output["name"] == input_["name"] == "songs/songs"
    assert output["namespace"] == input_["namespace"]
    assert output["namespace"].startswith("file://")
    assert _version(output) == _version(input_)
    assert _version(read[-1]["outputs"][0]) == songs.record["output_ref"]
    assert written[-1]["outputs"][0]["outputFacets"]["outputStatistics"]["fileCount"] == 1


def test_all_attempts_of_a_run_have_the_workflow_as_their_parent(songs):
    attempts = [
        *songs.receiver.of("songs.lineage_ingest"),
        *songs.receiver.of(CLEAN),
    ]
    parents = {json.dumps(event["run"]["facets"]["parent"]["run"]) for event in attempts}
    assert len(parents) == 1
    assert {event["run"]["facets"]["parent"]["job"]["name"] for event in attempts} == {"songs"}
    assert len({event["run"]["runId"] for event in attempts}) == 2


def test_what_the_checks_found_is_told_of_input_and_output(songs):
    end = songs.receiver.of(CLEAN)[-1]
    (before,) = end["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert (before["assertion"], before["success"]) == ("require_table('raw', rows=20)", True)
    after = end["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert {check["success"] for check in after} == {True}
    assert {check["assertion"] for check in after} == {
        "require_table('clean', unique=['id'])",
        "require_table('clean', where='seconds > 0')",
    }


def test_what_spark_tells_of_its_own_jobs_is_a_child_of_the_attempt(songs):
    (attempt,) = {event["run"]["runId"] for event in songs.receiver.of(CLEAN)}
    applications = [
        event
        for event in songs.receiver.events
        if event["run"]["facets"].get("parent", {}).get("run", {}).get("runId") == attempt
    ]
    assert _told(applications) == ["START", "COMPLETE"], songs.said
    (application,) = {event["run"]["runId"] for event in applications}
    root = applications[0]["run"]["facets"]["parent"]["root"]
    workflow = songs.receiver.of(CLEAN)[0]["run"]["facets"]["parent"]
    assert root["run"]["runId"] == workflow["run"]["runId"]
    jobs = [
        event
        for event in songs.receiver.events
        if event["run"]["facets"].get("parent", {}).get("run", {}).get("runId") == application
    ]
    written = {output["name"] for event in jobs for output in event.get("outputs", ())}
    assert any(name.endswith("/clean") for name in written), written
    assert "COMPLETE" in _told(jobs)


@pytest.mark.core
def test_an_attempt_that_was_killed_has_failed_and_its_retry_is_another_run(tmp_path):
    with LineageReceiver() as receiver:
        died = f"die_once.marker={tmp_path / 'died'}"
        record = run(receiver, tmp_path, "lineage_tasks:mortal", "--param", died).record
    events = receiver.of("mortal.lineage_die")
    assert _told(events) == ["START", "FAIL", "START", "COMPLETE"]
    first, second = [event["run"]["runId"] for event in events[::2]]
    assert first != second
    assert UUID(first).version == 7
    failed = events[1]
    assert "SIGKILL" in failed["run"]["facets"]["errorMessage"]["message"]
    assert failed["outputs"] == []
    assert _version(events[-1]["outputs"][0]) == record["output_ref"]
