"""The embedded orchestrator: Conductor's task states, retries, leases and time-outs in one file."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue.plan import decode_plan
from perago.adapters.embedded.queue.policy import may_start, step_of
from perago.adapters.embedded.queue.rows import attempt_of, load_attempt, snapshot_of
from perago.adapters.embedded.queue.runs import RunBook
from perago.adapters.embedded.queue.transitions import (
    after_completion,
    after_failure,
    end_attempt,
    extend_lease,
    hand_out,
    requeue,
)
from perago.model.attempt import Delivery, TaskStatus
from perago.model.outcome import ReportReceipt, assert_reportable
from perago.model.run import RunStatus

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from perago.adapters.embedded.queue.transitions import Moment
    from perago.model.attempt import Attempt, AttemptSnapshot
    from perago.model.controls import TaskControls
    from perago.model.outcome import TaskReport
    from perago.ports.clock import Clock


class EmbeddedQueue(RunBook):
    """An :class:`~perago.ports.orchestrator.Orchestrator` for any number of processes of a machine.

    Nothing is accepted on a lease that has run out, because every call applies the time-outs that
    have passed first. With ``only_run`` polls see that run alone. ``durable=False`` gives up safety
    against power loss, for tests. Any method may raise OrchestratorUnavailableError (locked for
    too long), StoreFullError or StoreFormatError.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        durable: bool = True,
        only_run: str | None = None,
    ) -> None:
        super().__init__(path, clock=clock, durable=durable)
        self._only_run = only_run

    def poll(self, task_names: Sequence[str], *, worker_id: str, limit: int = 1) -> list[Delivery]:
        """Take up to ``limit`` due tasks of running runs, the longest due first.

        A task at its ``limits`` stays where it is and lets others pass. A delivery's
        ``response_seconds`` is 0 if its lease never runs out.
        """
        deliveries: list[Delivery] = []
        with self._moment() as at:
            for row in self._due(at, task_names):
                if len(deliveries) >= limit:
                    break
                plan = decode_plan(row["plan"])
                controls = step_of(plan, row["reference"]).controls
                if not _within_limits(at, row, controls):
                    continue
                hand_out(at, row, worker_id=worker_id, timeout=controls.timeout)
                deliveries.append(
                    Delivery(
                        attempt=replace(attempt_of(row), workflow_name=plan.name),
                        input=json.loads(row["input"]),
                        worker_id=worker_id,
                        response_seconds=float(controls.timeout.response_seconds),
                        poll_count=row["poll_count"] + 1,
                    )
                )
        return deliveries

    def reload(self, attempt: Attempt) -> AttemptSnapshot:
        """What this attempt is now. Raises UnknownAttemptError."""
        with self._moment() as at:
            return snapshot_of(at.connection, load_attempt(at.connection, attempt.task_id))

    def accepted_ref(self, task_id: str) -> str | None:
        """The workspace ref a task was accepted with; None without one, or without the task."""
        with self._moment() as at:
            found = at.connection.execute(
                "SELECT output FROM attempts WHERE task_id = ? AND status = ?",
                (task_id, TaskStatus.COMPLETED),
            ).fetchone()
        workspace = json.loads(found["output"]).get("workspace") if found else None
        return workspace["ref"] if workspace else None

    def heartbeat(self, delivery: Delivery) -> bool:
        """Extend the lease; False if the attempt isn't in progress, or was delivered again."""
        with self._moment() as at:
            row = load_attempt(at.connection, delivery.attempt.task_id)
            if not _is_held_by(row, delivery):
                return False
            extend_lease(at, row, _controls_of(row).timeout)
            return True

    def report(self, delivery: Delivery, report: TaskReport) -> ReportReceipt:
        """End the attempt and set going what follows: the next step, a retry or the run's end.

        Ignored (``accepted=False``, with the present status) unless the attempt is in progress.
        Repeating the very report that was accepted is accepted again and changes nothing.
        """
        assert_reportable(report)
        with self._moment() as at:
            row = load_attempt(at.connection, delivery.attempt.task_id)
            if row["status"] != TaskStatus.IN_PROGRESS:
                return ReportReceipt(_is_repeat(row, report), TaskStatus(row["status"]))
            end_attempt(
                at, row["task_id"], report.status, reason=report.reason, output=report.output
            )
            if report.completed:
                after_completion(at, row["run_id"], row["reference"])
            else:
                after_failure(at, row["task_id"])
            return ReportReceipt(accepted=True, status=report.status)

    def give_back(self, delivery: Delivery) -> bool:
        """Make the attempt deliverable again under its task id, as long as it is this delivery's.

        What Conductor does on an ``IN_PROGRESS`` update that doesn't extend the lease.
        """
        with self._moment() as at:
            row = load_attempt(at.connection, delivery.attempt.task_id)
            if not _is_held_by(row, delivery):
                return False
            requeue(at, row)
            return True

    def writers(
        self,
        repository: str,
        branch: str,
        *,
        asking: str | None = None,  # noqa: ARG002 - nothing is saved by knowing
        seconds_old: float = 0.0,  # noqa: ARG002
    ) -> list[str]:
        """The active runs on this branch: at most one, since a second isn't even started."""
        active = self.active_on(repository, branch)
        return [] if active is None else [active.id]

    def _due(self, at: Moment, task_names: Sequence[str]) -> list[sqlite3.Row]:
        return at.connection.execute(
            "SELECT attempts.*, runs.plan FROM attempts JOIN runs ON runs.id = attempts.run_id"
            " WHERE attempts.queued = 1 AND attempts.task_name IN (SELECT value FROM json_each(?))"
            " AND attempts.due_at <= ? AND runs.status = ? AND runs.id = coalesce(?, runs.id)"
            " ORDER BY attempts.due_at, attempts.rowid",
            (json.dumps(list(task_names)), at.now, RunStatus.RUNNING, self._only_run),
        ).fetchall()


def _is_held_by(row: sqlite3.Row, delivery: Delivery) -> bool:
    now = (row["status"], row["poll_count"])
    return now == (TaskStatus.IN_PROGRESS, delivery.poll_count)


def _controls_of(row: sqlite3.Row) -> TaskControls:
    return step_of(decode_plan(row["plan"]), row["reference"]).controls


def _within_limits(at: Moment, row: sqlite3.Row, controls: TaskControls) -> bool:
    limits = controls.limits
    if not limits.concurrent_exec_limit and not limits.rate_limit_per_frequency:
        return True  # counting reads every attempt the task ever had
    window = limits.rate_limit_frequency_in_seconds or 0
    in_progress, recently_polled = at.connection.execute(
        "SELECT count(*) FILTER (WHERE status = ?), count(*) FILTER (WHERE polled_at > ?)"
        " FROM attempts WHERE task_name = ? AND task_id <> ?",
        (TaskStatus.IN_PROGRESS, at.now - window, row["task_name"], row["task_id"]),
    ).fetchone()
    return may_start(limits, in_progress=in_progress, recently_polled=recently_polled)


def _is_repeat(row: sqlite3.Row, report: TaskReport) -> bool:
    return (
        row["status"] == report.status
        and report.reason in (None, row["reason"])
        and json.loads(row["output"]) == json.loads(json.dumps(dict(report.output)))
    )
