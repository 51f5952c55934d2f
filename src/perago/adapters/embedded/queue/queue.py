"""The embedded orchestrator: Conductor's task states, retries, leases and time-outs in one file."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue.policy import may_start, step_of
from perago.adapters.embedded.queue.rows import (
    SCHEMA,
    attempt_of,
    decode_plan,
    encode_plan,
    load_attempt,
    load_run,
    run_of,
    snapshot_of,
)
from perago.adapters.embedded.queue.transitions import (
    Moment,
    active_run,
    after_completion,
    after_failure,
    end_attempt,
    end_run,
    extend_lease,
    hand_out,
    last_run,
    newest_resumable,
    refuse_busy_branch,
    refuse_superseded,
    replace_orphans,
    requeue,
    schedule,
    set_run_status,
    sweep,
)
from perago.adapters.local_io.sqlite import Database
from perago.errors import RunError, RunNotFoundError
from perago.model.attempt import Delivery, TaskStatus
from perago.model.outcome import ReportReceipt, assert_reportable
from perago.model.run import RunStatus, assert_active, assert_runnable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perago.model.attempt import Attempt, AttemptSnapshot
    from perago.model.controls import TaskControls
    from perago.model.outcome import TaskReport
    from perago.model.run import RunPlan, RunRecord
    from perago.model.workspace import WorkspaceRef
    from perago.ports.environment import Clock


# --- The queue's runs: starting them, looking at them, and what a person does to them ---


class RunBook:
    """The runs of one queue file, as ``perago run`` and the command line see them.

    Every method that changes something is one transaction, and applies the time-outs that have
    passed before it does anything else.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None, durable: bool = True) -> None:
        self._database = Database(path, SCHEMA, durable=durable)
        self._now = time.time if clock is None else clock.now

    def close(self) -> None:
        """Let go of the file in this process; using the queue again opens it again."""
        self._database.close()

    def start(
        self, plan: RunPlan, workspace: WorkspaceRef | None, *, run_id: str | None = None
    ) -> str:
        """Begin a run of ``plan`` at ``workspace`` and return its id; its first step is due now.

        Raises BranchBusyError if an active run writes the same branch, and RunError for a plan
        that can't be run or an id that is taken.
        """
        assert_runnable(plan, workspace)
        run_id = run_id or str(uuid.uuid4())
        with self._moment() as at:
            refuse_busy_branch(at.connection, workspace)
            if at.connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone():
                raise RunError(f"there is a run {run_id!r} already", fix="leave run_id out")
            at.connection.execute(
                "INSERT INTO runs (id, plan, status, repository, branch, ref, created_at,"
                " updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run_id,
                    encode_plan(plan),
                    RunStatus.RUNNING,
                    workspace.repository if workspace else None,
                    workspace.branch if workspace else None,
                    workspace.ref if workspace else None,
                    at.now,
                    at.now,
                ),
            )
            schedule(at, load_run(at.connection, run_id), plan.steps[0])
        return run_id

    def get(self, run_id: str) -> RunRecord:
        """Raises RunNotFoundError."""
        with self._database.reading() as connection:
            return load_run(connection, run_id)

    def find(self, prefix: str) -> RunRecord:
        """The one run whose id starts with ``prefix``.

        Raises RunNotFoundError if there is none or, naming them, if there are several.
        """
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT id FROM runs WHERE substr(id, 1, length(?1)) = ?1 AND ?1 <> ''"
                " ORDER BY position DESC",
                (prefix,),
            ).fetchall()
            if not rows:
                raise RunNotFoundError(
                    f"no run's id starts with {prefix!r}",
                    fix="`perago runs` lists the runs there are",
                )
            exact = [row["id"] for row in rows if row["id"] == prefix]
            if len(rows) > 1 and not exact:
                named = ", ".join(row["id"] for row in rows[:5])
                raise RunNotFoundError(
                    f"{len(rows)} runs have an id that starts with {prefix!r}: {named}",
                    fix="give more of the id",
                )
            return load_run(connection, exact[0] if exact else rows[0]["id"])

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """The last ``limit`` runs, newest first."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT * FROM runs ORDER BY position DESC LIMIT ?", (limit,)
            ).fetchall()
            return [run_of(connection, row) for row in rows]

    def active_on(self, repository: str, branch: str) -> RunRecord | None:
        """The RUNNING or PAUSED run that writes the branch, if there is one."""
        with self._database.reading() as connection:
            return active_run(connection, repository, branch)

    def last_on(self, repository: str, branch: str) -> RunRecord | None:
        """The newest run on the branch, however it ended."""
        with self._database.reading() as connection:
            return last_run(connection, repository, branch)

    def resumable(self, target: str | None) -> RunRecord | None:
        """The newest run that :meth:`resume` has something to do for and isn't superseded.

        ``target`` is its plan's target or name; None is for any.
        """
        with self._database.reading() as connection:
            return newest_resumable(connection, target)

    def next_due(self, run_id: str) -> float | None:
        """When the run's next scheduled attempt may be polled; None if none is waiting."""
        with self._database.reading() as connection:
            load_run(connection, run_id)
            due: float | None = connection.execute(
                "SELECT min(due_at) FROM attempts WHERE run_id = ? AND queued = 1", (run_id,)
            ).fetchone()[0]
            return due

    def pause(self, run_id: str, reason: str) -> None:
        """Hand out nothing more of the run until it is resumed; its time-outs wait too.

        An attempt in progress may still end. Pausing a paused run is nothing new. Raises RunError
        if the run has ended.
        """
        with self._moment() as at:
            run = load_run(at.connection, run_id)
            assert_active(run, "paused")
            set_run_status(at, run_id, RunStatus.PAUSED, reason=reason)

    def cancel(self, run_id: str, reason: str) -> None:
        """End the run TERMINATED; its unfinished attempts are CANCELED.

        Raises RunError if it has ended already.
        """
        with self._moment() as at:
            run = load_run(at.connection, run_id)
            assert_active(run, "cancelled")
            end_run(at, run_id, RunStatus.TERMINATED, reason=reason)

    def resume(self, run_id: str) -> None:
        """Go on with a run whose runner is gone, that is paused, or that failed or timed out.

        What was in progress is TIMED_OUT and tried again at once under a new task id. A failed or
        timed-out run gets one more attempt of the step that ended it, also beyond its retry
        limit. Raises BranchBusyError if another active run writes the branch by now, and RunError
        if the run is COMPLETED or TERMINATED, or if another run has had something accepted on the
        branch since it began.
        """
        with self._moment() as at:
            run = load_run(at.connection, run_id)
            if run.status in (RunStatus.COMPLETED, RunStatus.TERMINATED):
                raise RunError(
                    f"run {run_id} is {run.status}: there is nothing to resume",
                    fix="start a new run from the branch's present head",
                )
            refuse_superseded(at.connection, run)
            if run.status.is_active:
                replace_orphans(at, run)
            else:
                refuse_busy_branch(at.connection, run.workspace)
                last = run.attempts[-1].attempt
                step = step_of(run.plan, last.reference_task_name)
                schedule(at, run, step, retry_count=last.retry_count + 1)
            set_run_status(at, run_id, RunStatus.RUNNING, reason=None)

    @contextmanager
    def _moment(self) -> Iterator[Moment]:
        with self._database.writing() as connection:
            at = Moment(connection, self._now())
            sweep(at)
            yield at


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
