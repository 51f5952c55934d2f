"""Conductor's tasks as our values: nothing that a server sends is a surprise."""

import pytest

from perago.adapters.conductor.tasks import (
    LOG_LIMIT,
    accepted_ref_of,
    delivery_of,
    matches_report,
    record_of,
    report_of,
    snapshot_of,
    status_of,
)
from perago.errors import OrchestratorError
from perago.model.attempt import TaskStatus
from perago.model.outcome import REASON_LIMIT, TaskReport

TASK = {
    "taskType": "songs.clean",
    "taskDefName": "songs.clean",
    "status": "IN_PROGRESS",
    "inputData": {"params": {"year": 1999}},
    "referenceTaskName": "songs_clean",
    "retryCount": 0,
    "seq": 2,
    "iteration": 0,
    "pollCount": 1,
    "scheduledTime": 1_794_803_431_279,
    "startTime": 0,
    "endTime": 0,
    "callbackAfterSeconds": 3,
    "retried": False,
    "responseTimeoutSeconds": 600,
    "workflowInstanceId": "w-1",
    "workflowType": "songs",
    "taskId": "t-1",
    "workerId": "worker-1",
    "outputData": {},
}
DONE = TaskReport(TaskStatus.COMPLETED, {"workspace": {"ref": "C"}, "result": {"n": 1.0}})


def task(**changed):
    return {**TASK, **changed}


# --- what is read ---------------------------------------------------------------------------------


def test_a_delivery_has_what_the_task_has():
    delivery = delivery_of(TASK, "worker-1")
    assert delivery.attempt.task_name == "songs.clean"
    assert delivery.attempt.workflow_name == "songs"
    assert (delivery.attempt.seq, delivery.attempt.retry_count) == (2, 0)
    assert (delivery.poll_count, delivery.response_seconds) == (1, 600.0)
    assert delivery.input == {"params": {"year": 1999}}


@pytest.mark.parametrize(
    "name",
    [
        "workflowInstanceId",
        "referenceTaskName",
        "taskId",
        "taskDefName",
        "seq",
        "retryCount",
        "iteration",
        "pollCount",
        "responseTimeoutSeconds",
    ],
)
@pytest.mark.parametrize("value", [None, [], {}])
def test_a_task_without_something_is_an_error_that_names_it(name, value):
    with pytest.raises(OrchestratorError, match=name):
        delivery_of(task(**{name: value}), "w")


@pytest.mark.parametrize("raw", [None, "text", 3, []])
def test_what_is_no_task_at_all_is_an_error(raw):
    with pytest.raises(OrchestratorError, match="a task"):
        delivery_of(raw, "w")


def test_an_input_of_another_type_is_an_error():
    with pytest.raises(OrchestratorError, match="inputData"):
        delivery_of(task(inputData="text"), "w")


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("COMPLETED_WITH_ERRORS", TaskStatus.FAILED),
        ("SKIPPED", TaskStatus.CANCELED),
        ("TIMED_OUT", TaskStatus.TIMED_OUT),
    ],
)
def test_each_of_conductors_states_is_one_of_ours(said, status):
    assert status_of(task(status=said)) is status


def test_a_state_that_nobody_knows_is_an_error():
    with pytest.raises(OrchestratorError, match="'ASLEEP'"):
        status_of(task(status="ASLEEP"))


def test_times_are_seconds_and_one_that_has_not_come_is_none():
    record = record_of(TASK)
    assert record.scheduled_at == 1_794_803_431.279
    assert record.due_at == record.scheduled_at + 3
    assert (record.started_at, record.ended_at) == (None, None)


# --- whether it is still the latest ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "reason"),
    [("SCHEDULED", None), ("IN_PROGRESS", None), ("FAILED", "why"), ("TIMED_OUT", "why")],
)
def test_a_retry_doesnt_have_the_reason_of_what_it_retries(status, reason):
    assert record_of(task(status=status, reasonForIncompletion="why")).reason == reason


def test_an_attempt_with_nothing_after_it_is_the_latest():
    assert snapshot_of(TASK, [TASK]).is_latest


def test_an_attempt_that_was_retried_is_not_the_latest():
    assert not snapshot_of(task(retried=True), []).is_latest


def test_an_attempt_with_a_newer_one_for_its_reference_is_not_the_latest_however_that_ended():
    newer = task(taskId="t-2", seq=3, retryCount=1, status="COMPLETED")
    assert not snapshot_of(TASK, [TASK, newer]).is_latest


@pytest.mark.parametrize("other", [{"referenceTaskName": "songs_rank"}, {"iteration": 1}])
def test_what_comes_after_it_elsewhere_does_not_count(other):
    assert snapshot_of(TASK, [TASK, task(taskId="t-2", seq=3, **other)]).is_latest


# --- what was accepted ----------------------------------------------------------------------------


def ended(**changed):
    return task(status="COMPLETED", outputData=dict(DONE.output), **changed)


def test_a_report_that_reads_back_as_it_was_sent_is_accepted():
    assert matches_report(ended(), DONE, "worker-1")


@pytest.mark.parametrize(
    "raw",
    [
        ended(workerId="worker-2"),
        ended(workerId=None),
        {**ended(), "status": "TIMED_OUT"},
        {**ended(), "outputData": {"workspace": {"ref": "D"}, "result": {"n": 1.0}}},
        {**ended(), "outputData": {}},
    ],
)
def test_whatever_else_it_reads_back_as_was_not_ours(raw):
    assert not matches_report(raw, DONE, "worker-1")


def test_an_output_that_was_moved_away_counts_as_the_one_that_was_sent():
    raw = task(status="COMPLETED", externalOutputPayloadStoragePath="somewhere.json")
    assert matches_report(raw, DONE, "worker-1")


def test_text_that_is_none_reads_back_as_it_is_stored():
    report = TaskReport(TaskStatus.COMPLETED, {"result": {"a": "x\ud800"}})
    raw = task(status="COMPLETED", outputData={"result": {"a": "x?"}})
    assert matches_report(raw, report, "worker-1")


def test_only_a_completed_task_has_an_accepted_ref():
    assert accepted_ref_of(ended()) == "C"
    assert accepted_ref_of({**ended(), "status": "FAILED"}) is None
    assert accepted_ref_of(task(status="COMPLETED", outputData={"result": {}})) is None


def test_a_ref_that_can_not_be_read_is_never_told_as_none():
    raw = task(status="COMPLETED", externalOutputPayloadStoragePath="somewhere.json")
    with pytest.raises(OrchestratorError, match="t-1"):
        accepted_ref_of(raw)


# --- what is sent ---------------------------------------------------------------------------------


def test_reason_and_log_are_cut_the_log_to_its_end():
    report = TaskReport(
        TaskStatus.FAILED, reason="r" * 2 * REASON_LIMIT, logs=("x" * LOG_LIMIT, "the last line")
    )
    sent = report_of(delivery_of(TASK, "worker-1"), report)
    assert sent["reasonForIncompletion"] == "r" * REASON_LIMIT
    (entry,) = sent["logs"]
    assert len(entry["log"]) == LOG_LIMIT
    assert entry["log"].endswith("x\nthe last line")


def test_who_has_said_nothing_leaves_no_log():
    assert report_of(delivery_of(TASK, "w"), DONE)["logs"] == []
