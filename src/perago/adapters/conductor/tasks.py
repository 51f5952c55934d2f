"""Conductor's task JSON to and from the model's values. No I/O."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.responses import document, encode_json, optional, required, seconds
from perago.errors import OrchestratorError
from perago.model.attempt import Attempt, AttemptSnapshot, Delivery, TaskStatus
from perago.model.outcome import REASON_LIMIT
from perago.model.run import AttemptRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perago.model.outcome import TaskReport

LOG_LIMIT = 32_000
"""Only the last so many characters of an attempt's log go to Conductor."""

_TASK = "a task"
_STATUSES = {
    "COMPLETED_WITH_ERRORS": TaskStatus.FAILED,  # an optional task failed
    "SKIPPED": TaskStatus.CANCELED,
}


def status_of(raw: Mapping[str, Any]) -> TaskStatus:
    name = required(raw, "status", str, _TASK)
    try:
        return _STATUSES.get(name) or TaskStatus(name)
    except ValueError:
        raise OrchestratorError(f"Conductor sent a task whose status is {name!r}") from None


def attempt_of(raw: Mapping[str, Any]) -> Attempt:
    """The attempt's identity."""
    return Attempt(
        workflow_instance_id=required(raw, "workflowInstanceId", str, _TASK),
        reference_task_name=required(raw, "referenceTaskName", str, _TASK),
        seq=required(raw, "seq", int, _TASK),
        iteration=required(raw, "iteration", int, _TASK),
        task_id=required(raw, "taskId", str, _TASK),
        retry_count=required(raw, "retryCount", int, _TASK),
        task_name=required(raw, "taskDefName", str, _TASK),
    )


def delivery_of(raw: object, worker_id: str) -> Delivery:
    """A task from the response to a poll."""
    task = document(raw, _TASK)
    return Delivery(
        attempt=replace(
            attempt_of(task), workflow_name=optional(task, "workflowType", str, _TASK) or ""
        ),
        input=optional(task, "inputData", dict, _TASK) or {},
        worker_id=worker_id,
        response_seconds=float(required(task, "responseTimeoutSeconds", int, _TASK)),
        poll_count=required(task, "pollCount", int, _TASK),
    )


def snapshot_of(raw: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> AttemptSnapshot:
    """What the attempt fence compares; ``others`` include every task that may have replaced it.

    The flag ``retried`` alone is not enough: when Conductor extends a lease, it writes back the
    task as it was read before and may undo a change made in between.
    """
    mine = attempt_of(raw)
    is_replaced = bool(raw.get("retried")) or any(
        other.reference_task_name == mine.reference_task_name
        and other.iteration == mine.iteration
        and other.seq > mine.seq
        for other in map(attempt_of, others)
    )
    return AttemptSnapshot(
        status=status_of(raw),
        workflow_instance_id=mine.workflow_instance_id,
        task_id=mine.task_id,
        retry_count=mine.retry_count,
        poll_count=required(raw, "pollCount", int, _TASK),
        worker_id=optional(raw, "workerId", str, _TASK),
        is_latest=not is_replaced,
    )


def record_of(raw: Mapping[str, Any]) -> AttemptRecord:
    """Everything that Conductor keeps about an attempt."""
    scheduled_at = seconds(raw, "scheduledTime", _TASK) or 0.0
    # A retry starts with the reason of the attempt that it retries, until it ends itself.
    has_ended = status_of(raw) not in (TaskStatus.SCHEDULED, TaskStatus.IN_PROGRESS)
    reason = optional(raw, "reasonForIncompletion", str, _TASK)
    return AttemptRecord(
        attempt=attempt_of(raw),
        status=status_of(raw),
        scheduled_at=scheduled_at,
        due_at=scheduled_at + (optional(raw, "callbackAfterSeconds", int, _TASK) or 0),
        started_at=seconds(raw, "startTime", _TASK),
        ended_at=seconds(raw, "endTime", _TASK),
        worker_id=optional(raw, "workerId", str, _TASK),
        poll_count=required(raw, "pollCount", int, _TASK),
        reason=reason if has_ended else None,
        input=optional(raw, "inputData", dict, _TASK) or {},
        output=output_of(raw),
    )


def output_of(raw: Mapping[str, Any]) -> dict[str, Any]:
    return optional(raw, "outputData", dict, _TASK) or {}


def _has_external_output(raw: Mapping[str, Any]) -> bool:
    """Whether the output was too large, so that Conductor stored it outside of the task."""
    return bool(raw.get("externalOutputPayloadStoragePath"))


def accepted_ref_of(raw: Mapping[str, Any]) -> str | None:
    """The workspace ref a task was accepted with.

    Raises OrchestratorError if the output is stored elsewhere: on a wrong "none" the caller could
    replace an accepted commit.
    """
    if status_of(raw) is not TaskStatus.COMPLETED:
        return None
    if _has_external_output(raw):
        raise OrchestratorError(
            f"Conductor stores the output of task {raw.get('taskId')} outside of the task, so the "
            "ref it was accepted with is unknown"
        )
    workspace = output_of(raw).get("workspace")
    ref = workspace.get("ref") if isinstance(workspace, dict) else None
    return ref if isinstance(ref, str) else None


def is_in_progress(raw: Mapping[str, Any], delivery: Delivery) -> bool:
    """Whether the task is in progress and has not been delivered again."""
    same_delivery = raw.get("pollCount") == delivery.poll_count
    return status_of(raw) is TaskStatus.IN_PROGRESS and same_delivery


def matches_report(raw: Mapping[str, Any], report: TaskReport, worker_id: str) -> bool:
    """Whether the task, read back, ended with this report of this worker."""
    if status_of(raw) is not report.status or raw.get("workerId") != worker_id:
        return False
    sent = json.loads(encode_json(dict(report.output)))
    return _has_external_output(raw) or output_of(raw) == sent


def update_of(delivery: Delivery, **fields: object) -> dict[str, object]:
    """A delivery as a TaskResult, Conductor's update of a task, with these ``fields``."""
    attempt = delivery.attempt
    return {
        "workflowInstanceId": attempt.workflow_instance_id,
        "taskId": attempt.task_id,
        "workerId": delivery.worker_id,
        "callbackAfterSeconds": 0,
        **fields,
    }


def report_of(delivery: Delivery, report: TaskReport) -> dict[str, object]:
    """A report as a TaskResult."""
    reason = report.reason and report.reason[:REASON_LIMIT]
    return update_of(
        delivery,
        status=report.status.value,
        outputData=dict(report.output),
        reasonForIncompletion=reason,
        logs=_log_entries(report.logs),
    )


def _log_entries(lines: tuple[str, ...]) -> list[dict[str, object]]:
    """All lines in one entry: Conductor shows only the first ten entries of a task."""
    text = "\n".join(lines)
    if not text:
        return []
    return [{"log": text[-LOG_LIMIT:], "createdTime": int(time.time() * 1000)}]
