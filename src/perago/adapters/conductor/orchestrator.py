"""The orchestrator port on a Conductor server: what a worker needs of it."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, Final, Self

from perago.adapters.conductor.active_workflows import ActiveWorkflows, innermost
from perago.adapters.conductor.client import ConductorClient
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.responses import document, documents
from perago.adapters.conductor.tasks import (
    accepted_ref_of,
    delivery_of,
    is_in_progress,
    matches_report,
    report_of,
    snapshot_of,
    status_of,
    update_of,
)
from perago.errors import OrchestratorError, OrchestratorUnavailableError, UnknownAttemptError
from perago.model.attempt import TaskStatus
from perago.model.outcome import ReportReceipt, assert_reportable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.adapters.conductor.client import ConductorConfig
    from perago.model.attempt import Attempt, AttemptSnapshot, Delivery
    from perago.model.outcome import TaskReport


HEARTBEAT_ANSWER_SECONDS: Final = 5.0
"""Time-out of each of a heartbeat's two requests: a report has to wait for a running heartbeat."""
_ALL_TASKS: Final = 100_000
_TASK_ID = re.compile(r"[\w.:-]{1,255}")


class ConductorOrchestrator:
    """An :class:`~perago.ports.orchestrator.Orchestrator`, for any number of threads.

    Conductor returns 200 for a report or a lease extension that it ignores, so each is read back.
    It extends a lease by writing the whole task back as it just read it: a heartbeat in flight
    while the same task's report arrives can undo the report. Stop the heartbeats before a report.
    Any method may raise OrchestratorUnavailableError or OrchestratorRefusedError.
    """

    def __init__(self, config: ConductorConfig) -> None:
        self._config = config
        self._client = ConductorClient(config)
        self._active = ActiveWorkflows(self._client)
        self._polls = itertools.count()

    def __reduce__(self) -> tuple[type[Self], tuple[ConductorConfig]]:
        """Pickled without its connections: they belong to this process."""
        return type(self), (self._config,)

    def close(self) -> None:
        """Close the connections; using this again connects again."""
        self._client.close()

    def poll(self, task_names: Sequence[str], *, worker_id: str, limit: int = 1) -> list[Delivery]:
        """Take up to ``limit`` scheduled tasks; each poll starts with the next of the names.

        If a later name fails, the deliveries of the earlier ones are returned: they are ours.
        """
        deliveries: list[Delivery] = []
        first = next(self._polls) % len(task_names) if task_names else 0
        for name in (*task_names[first:], *task_names[:first]):
            if len(deliveries) >= limit:
                break
            try:
                deliveries += self._poll(name, worker_id, limit - len(deliveries))
            except OrchestratorError:
                if not deliveries:
                    raise
                break
        return deliveries

    def _poll(self, task_name: str, worker_id: str, count: int) -> list[Delivery]:
        path = api_path(
            "tasks", "poll", "batch", task_name, workerid=worker_id, count=count, timeout=0
        )
        # Not repeatable: no worker would run the tasks that the first request took.
        found = self._client.read(path, doing=f"polling for {task_name}", repeatable=False)
        return [delivery_of(raw, worker_id) for raw in documents(found, "tasks")]

    def reload(self, attempt: Attempt) -> AttemptSnapshot:
        """The attempt's present state. Raises UnknownAttemptError."""
        return self._snapshot(attempt)

    def _snapshot(self, attempt: Attempt, *, timeout: float | None = None) -> AttemptSnapshot:
        # Conductor lists tasks in the order of their seq, which counts from 1. So the first request
        # reads the attempt itself and what was scheduled after it, usually nothing.
        for start in (max(attempt.seq - 1, 0), 0):
            tasks = self._workflow_tasks(attempt.workflow_instance_id, start, timeout)
            mine = next((raw for raw in tasks if raw.get("taskId") == attempt.task_id), None)
            if mine is not None:
                return snapshot_of(mine, tasks)
        raise _unknown(attempt.task_id)

    def _workflow_tasks(
        self, workflow_id: str, start: int, timeout: float | None
    ) -> list[Mapping[str, Any]]:
        found = self._client.find(
            api_path("workflow", workflow_id, "tasks", start=start, count=_ALL_TASKS),
            doing=f"reading the tasks of workflow {workflow_id}",
            timeout=timeout,
        )
        if found is None:
            return []
        page = document(found, "a list of tasks")
        return documents(page.get("results"), "tasks")

    def accepted_ref(self, task_id: str) -> str | None:
        """The workspace ref a task was accepted with; None without one, or without the task."""
        raw = self._find_task(task_id)
        return None if raw is None else accepted_ref_of(raw)

    def heartbeat(self, delivery: Delivery) -> bool:
        """Extend the lease; False if the attempt isn't in progress, or was delivered again."""
        update = update_of(delivery, status=TaskStatus.IN_PROGRESS.value, extendLease=True)
        self._update(delivery, update, "extending the lease of", timeout=HEARTBEAT_ANSWER_SECONDS)
        return self._is_held(delivery, timeout=HEARTBEAT_ANSWER_SECONDS)

    def report(self, delivery: Delivery, report: TaskReport) -> ReportReceipt:
        """Report the attempt's end and read back whether Conductor accepted it.

        Repeating an accepted report is accepted again. Raises OrchestratorUnavailableError if
        Conductor took the report and the attempt is still in progress.
        """
        assert_reportable(report)
        self._update(delivery, report_of(delivery, report), "reporting")
        task_id = delivery.attempt.task_id
        raw = self._task(task_id)
        if is_in_progress(raw, delivery):
            raise OrchestratorUnavailableError(
                f"reporting task {task_id}: Conductor took the report, but the task is still in "
                "progress",
                fix="report again, and send no heartbeat at the same time as a report",
            )
        accepted = matches_report(raw, report, delivery.worker_id)
        return ReportReceipt(accepted=accepted, status=status_of(raw))

    def give_back(self, delivery: Delivery) -> bool:
        """Put the attempt back into its queue; False if this delivery no longer holds it."""
        if not self._is_held(delivery):
            return False
        update = update_of(delivery, status=TaskStatus.IN_PROGRESS.value)
        self._update(delivery, update, "giving back")
        return True

    def writers(
        self, repository: str, branch: str, *, asking: str | None = None, seconds_old: float = 0.0
    ) -> list[str]:
        """The active workflows on this branch, without those that wait for a sub-workflow."""
        found = self._active.writers(repository, branch, asking=asking, seconds_old=seconds_old)
        return [summary.id for summary in innermost(found)]

    def _is_held(self, delivery: Delivery, *, timeout: float | None = None) -> bool:
        now = self._snapshot(delivery.attempt, timeout=timeout)
        return (
            now.status is TaskStatus.IN_PROGRESS
            and now.poll_count == delivery.poll_count
            and now.is_latest
        )

    def _update(
        self,
        delivery: Delivery,
        update: dict[str, object],
        doing: str,
        *,
        timeout: float | None = None,
    ) -> None:
        self._client.send(
            "POST",
            api_path("tasks"),
            update,
            doing=f"{doing} task {delivery.attempt.task_id}",
            not_found=UnknownAttemptError,
            timeout=timeout,
        )

    def _task(self, task_id: str) -> Mapping[str, Any]:
        raw = self._find_task(task_id)
        if raw is None:
            raise _unknown(task_id)
        return raw

    def _find_task(self, task_id: str) -> Mapping[str, Any] | None:
        if not _TASK_ID.fullmatch(task_id):  # from the commit of another program
            return None
        found = self._client.find(api_path("tasks", task_id), doing=f"reading task {task_id}")
        return None if found is None else document(found, "a task")


def _unknown(task_id: str) -> UnknownAttemptError:
    return UnknownAttemptError(
        f"Conductor has no task {task_id!r}",
        fix="check that the worker uses the server that delivered the task",
    )
