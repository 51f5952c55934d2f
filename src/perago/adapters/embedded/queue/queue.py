"""The embedded orchestrator: Conductor's task states, retries, leases and time-outs in SQLite."""

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
    controls_of,
    decode_plan,
    encode_plan,
    load_attempt,
    load_run,
    run_of,
    snapshot_of,
)
from perago.adapters.embedded.queue.transitions import (
    Transaction,
    active_run,
    after_completion,
    after_failure,
    apply_timeouts,
    assert_branch_free,
    assert_not_superseded,
    deliver,
    end_attempt,
    end_run,
    extend_lease,
    last_run,
    newest_resumable,
    replace_orphans,
    requeue,
    schedule,
    set_run_status,
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


class EmbeddedQueue:
    """An :class:`~perago.ports.orchestrator.Orchestrator` in one file, for one machine's processes.

    Every call that changes something is one transaction. It first applies the time-outs that have
    passed, so nothing is accepted on an expired lease. With ``only_run``, polls return attempts of
    that run only. ``durable=False`` gives up safety against power loss, for tests.

    Any method may raise OrchestratorUnavailableError (locked for too long), StoreFullError or
    StoreFormatError.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        durable: bool = True,
        only_run: str | None = None,
    ) -> None:
        self._database = Database(path, SCHEMA, durable=durable)
        self._now = time.time if clock is None else clock.now
        self._only_run = only_run

    def close(self) -> None:
        """Close this process's connections. The next use opens new ones."""
        self._database.close()

    # --- attempts, for workers ----------------------------------------------------------------

    def poll(self, task_names: Sequence[str], *, worker_id: str, limit: int = 1) -> list[Delivery]:
        """Deliver up to ``limit`` due attempts of running runs, the longest due first.

        Attempts of a task that has reached its ``limits`` are skipped. A delivery's
        ``response_seconds`` is 0 if its lease never expires.
        """
        deliveries: list[Delivery] = []
        with self._transaction() as tx:
            for row in self._due(tx, task_names):
                if len(deliveries) >= limit:
                    break
                controls = controls_of(row)
                if not _within_limits(tx, row, controls):
                    continue
                deliver(tx, row, worker_id=worker_id, timeout=controls.timeout)
                deliveries.append(
                    Delivery(
                        attempt=replace(
                            attempt_of(row), workflow_name=decode_plan(row["plan"]).name
                        ),
                        input=json.loads(row["input"]),
                        worker_id=worker_id,
                        response_seconds=float(controls.timeout.response_seconds),
                        poll_count=row["poll_count"] + 1,
                    )
                )
        return deliveries

    def reload(self, attempt: Attempt) -> AttemptSnapshot:
        """The attempt's present state. Raises UnknownAttemptError."""
        with self._transaction() as tx:
            return snapshot_of(tx.connection, load_attempt(tx.connection, attempt.task_id))

    def accepted_ref(self, task_id: str) -> str | None:
        """The workspace ref that a task completed with; None if there is none, or no such task."""
        with self._transaction() as tx:
            found = tx.connection.execute(
                "SELECT output FROM attempts WHERE task_id = ? AND status = ?",
                (task_id, TaskStatus.COMPLETED),
            ).fetchone()
        workspace = json.loads(found["output"]).get("workspace") if found else None
        return workspace["ref"] if workspace else None

    def heartbeat(self, delivery: Delivery) -> bool:
        """Extend the lease; False if the attempt is not in progress, or was delivered again."""
        with self._transaction() as tx:
            row = load_attempt(tx.connection, delivery.attempt.task_id)
            if not _is_held_by(row, delivery):
                return False
            extend_lease(tx, row, controls_of(row).timeout)
            return True

    def report(self, delivery: Delivery, report: TaskReport) -> ReportReceipt:
        """End the attempt, then schedule the next step or a retry, or end the run.

        Ignored (``accepted=False``, with the present status) unless the attempt is in progress.
        An accepted report that is repeated is accepted again and changes nothing.
        """
        assert_reportable(report)
        with self._transaction() as tx:
            row = load_attempt(tx.connection, delivery.attempt.task_id)
            if row["status"] != TaskStatus.IN_PROGRESS:
                return ReportReceipt(_is_repeat(row, report), TaskStatus(row["status"]))
            end_attempt(
                tx, row["task_id"], report.status, reason=report.reason, output=report.output
            )
            if report.completed:
                after_completion(tx, row["run_id"], row["reference"])
            else:
                after_failure(tx, row["task_id"])
            return ReportReceipt(accepted=True, status=report.status)

    def give_back(self, delivery: Delivery) -> bool:
        """Make the attempt deliverable again under its task id; False if it was delivered again.

        Conductor does this on an ``IN_PROGRESS`` update that does not extend the lease.
        """
        with self._transaction() as tx:
            row = load_attempt(tx.connection, delivery.attempt.task_id)
            if not _is_held_by(row, delivery):
                return False
            requeue(tx, row)
            return True

    def writers(
        self,
        repository: str,
        branch: str,
        *,
        asking: str | None = None,  # noqa: ARG002 - the lookup is cheap
        seconds_old: float = 0.0,  # noqa: ARG002
    ) -> list[str]:
        """The active runs on this branch: at most one, because a second can't be started."""
        active = self.active_on(repository, branch)
        return [] if active is None else [active.id]

    # --- runs, for people ---------------------------------------------------------------------

    def start(
        self, plan: RunPlan, workspace: WorkspaceRef | None, *, run_id: str | None = None
    ) -> str:
        """Start a run of ``plan`` at ``workspace`` and return its id. Its first step is due now.

        Raises BranchBusyError if an active run writes the same branch, and RunError for a plan
        that can't be run or a ``run_id`` that exists.
        """
        assert_runnable(plan, workspace)
        run_id = run_id or str(uuid.uuid4())
        with self._transaction() as tx:
            assert_branch_free(tx.connection, workspace)
            if tx.connection.execute("SELECT 1 FROM runs WHERE id = ?", (run_id,)).fetchone():
                raise RunError(f"run {run_id!r} exists already", fix="leave run_id out")
            tx.connection.execute(
                "INSERT INTO runs (id, plan, status, repository, branch, ref, created_at,"
                " updated_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    run_id,
                    encode_plan(plan),
                    RunStatus.RUNNING,
                    workspace.repository if workspace else None,
                    workspace.branch if workspace else None,
                    workspace.ref if workspace else None,
                    tx.now,
                    tx.now,
                ),
            )
            schedule(tx, load_run(tx.connection, run_id), plan.steps[0])
        return run_id

    def get(self, run_id: str) -> RunRecord:
        """Raises RunNotFoundError."""
        with self._database.reading() as connection:
            return load_run(connection, run_id)

    def find(self, prefix: str) -> RunRecord:
        """The run whose id is, or alone starts with, ``prefix``.

        Raises RunNotFoundError if there is none, or if there are several; then it names them.
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
                    fix="`perago runs` lists all runs",
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
        """The newest run that can be resumed.

        ``target`` is its plan's target or name; None means any.
        """
        with self._database.reading() as connection:
            return newest_resumable(connection, target)

    def next_due(self, run_id: str) -> float | None:
        """When the run's next scheduled attempt is due; None if none is scheduled."""
        with self._database.reading() as connection:
            load_run(connection, run_id)
            due: float | None = connection.execute(
                "SELECT min(due_at) FROM attempts WHERE run_id = ? AND queued = 1", (run_id,)
            ).fetchone()[0]
            return due

    def pause(self, run_id: str, reason: str) -> None:
        """Deliver no more attempts of the run until it is resumed; its time-outs pause too.

        An attempt in progress may still end. Pausing a paused run only changes its reason. Raises
        RunError if the run has ended.
        """
        with self._transaction() as tx:
            run = load_run(tx.connection, run_id)
            assert_active(run, "paused")
            set_run_status(tx, run_id, RunStatus.PAUSED, reason=reason)

    def cancel(self, run_id: str, reason: str) -> None:
        """End the run as TERMINATED and its unfinished attempts as CANCELED.

        Raises RunError if the run has ended.
        """
        with self._transaction() as tx:
            run = load_run(tx.connection, run_id)
            assert_active(run, "cancelled")
            end_run(tx, run_id, RunStatus.TERMINATED, reason=reason)

    def resume(self, run_id: str) -> None:
        """Continue a run that is paused, failed or timed out, or whose runner died.

        An attempt in progress becomes TIMED_OUT and is retried at once under a new task id. A
        failed or timed-out run gets one more attempt of the step that ended it, even beyond its
        retry limit. Raises BranchBusyError if another active run writes the branch now, and
        RunError if the run is COMPLETED or TERMINATED, or if another run has published on the
        branch since this run started.
        """
        with self._transaction() as tx:
            run = load_run(tx.connection, run_id)
            if run.status in (RunStatus.COMPLETED, RunStatus.TERMINATED):
                raise RunError(
                    f"run {run_id} is {run.status}: there is nothing to resume",
                    fix="start a new run from the branch's present head",
                )
            assert_not_superseded(tx.connection, run)
            if run.status.is_active:
                replace_orphans(tx, run)
            else:
                assert_branch_free(tx.connection, run.workspace)
                last = run.attempts[-1].attempt
                step = step_of(run.plan, last.reference_task_name)
                schedule(tx, run, step, retry_count=last.retry_count + 1)
            set_run_status(tx, run_id, RunStatus.RUNNING, reason=None)

    @contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        with self._database.writing() as connection:
            tx = Transaction(connection, self._now())
            apply_timeouts(tx)
            yield tx

    def _due(self, tx: Transaction, task_names: Sequence[str]) -> list[sqlite3.Row]:
        return tx.connection.execute(
            "SELECT attempts.*, runs.plan FROM attempts JOIN runs ON runs.id = attempts.run_id"
            " WHERE attempts.queued = 1 AND attempts.task_name IN (SELECT value FROM json_each(?))"
            " AND attempts.due_at <= ? AND runs.status = ? AND runs.id = coalesce(?, runs.id)"
            " ORDER BY attempts.due_at, attempts.rowid",
            (json.dumps(list(task_names)), tx.now, RunStatus.RUNNING, self._only_run),
        ).fetchall()


def _is_held_by(row: sqlite3.Row, delivery: Delivery) -> bool:
    now = (row["status"], row["poll_count"])
    return now == (TaskStatus.IN_PROGRESS, delivery.poll_count)


def _within_limits(tx: Transaction, row: sqlite3.Row, controls: TaskControls) -> bool:
    limits = controls.limits
    if not limits.concurrent_exec_limit and not limits.rate_limit_per_frequency:
        return True  # without limits, save counting every attempt of the task
    window = limits.rate_limit_frequency_in_seconds or 0
    in_progress, recently_polled = tx.connection.execute(
        "SELECT count(*) FILTER (WHERE status = ?), count(*) FILTER (WHERE polled_at > ?)"
        " FROM attempts WHERE task_name = ? AND task_id <> ?",
        (TaskStatus.IN_PROGRESS, tx.now - window, row["task_name"], row["task_id"]),
    ).fetchone()
    return may_start(limits, in_progress=in_progress, recently_polled=recently_polled)


def _is_repeat(row: sqlite3.Row, report: TaskReport) -> bool:
    return (
        row["status"] == report.status
        and report.reason in (None, row["reason"])
        and json.loads(row["output"]) == json.loads(json.dumps(dict(report.output)))
    )
