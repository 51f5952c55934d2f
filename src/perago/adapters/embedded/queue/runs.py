"""The queue's runs: starting them, looking at them, and what a person does to them."""

from __future__ import annotations

import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.embedded.queue.branches import (
    active_run,
    last_run,
    newest_resumable,
    refuse_busy_branch,
    refuse_superseded,
)
from perago.adapters.embedded.queue.plan import encode_plan
from perago.adapters.embedded.queue.policy import step_of
from perago.adapters.embedded.queue.rows import load_run, run_of
from perago.adapters.embedded.queue.schema import CONTENTS
from perago.adapters.embedded.queue.transitions import (
    Moment,
    end_run,
    replace_orphans,
    schedule,
    set_run_status,
    sweep,
)
from perago.adapters.foundation.database import Database
from perago.errors import RunError, RunNotFoundError
from perago.model.run import RunStatus, assert_active, assert_runnable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.run import RunPlan, RunRecord
    from perago.model.workspace import WorkspaceRef
    from perago.ports.clock import Clock


class RunBook:
    """The runs of one queue file, as ``perago run`` and the command line see them.

    Every method that changes something is one transaction, and applies the time-outs that have
    passed before it does anything else.
    """

    def __init__(self, path: Path, *, clock: Clock | None = None, durable: bool = True) -> None:
        self._database = Database(path, CONTENTS, durable=durable)
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
