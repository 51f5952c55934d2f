"""Which run a branch belongs to, and which runs may go on there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.adapters.embedded.queue.rows import run_of
from perago.errors import BranchBusyError, RunError

if TYPE_CHECKING:
    import sqlite3

    from perago.model.run import RunRecord
    from perago.model.workspace import WorkspaceRef

# Other runs that had a publication accepted on the branch of the run `mine` since that began. Row
# ids grow in the order of scheduling, and a run that ends takes its open attempts with it: what
# another run completed after `mine` began was scheduled after it too, also if that run is older
# and was resumed meanwhile. An output whose ref is the input counts: it vouched for that head.
_SUPERSEDING = """
SELECT other.id FROM runs AS other JOIN attempts AS accepted ON accepted.run_id = other.id
WHERE other.repository = mine.repository AND other.branch = mine.branch AND other.id <> mine.id
    AND accepted.status = 'COMPLETED'
    AND json_extract(accepted.output, '$.workspace') IS NOT NULL
    AND accepted.rowid > (SELECT rowid FROM attempts WHERE run_id = mine.id AND seq = 1)
"""


def active_run(connection: sqlite3.Connection, repository: str, branch: str) -> RunRecord | None:
    """The one run that may write the branch now."""
    return _first(
        connection,
        "SELECT * FROM runs WHERE repository = ? AND branch = ?"
        " AND status IN ('RUNNING', 'PAUSED')",
        repository,
        branch,
    )


def last_run(connection: sqlite3.Connection, repository: str, branch: str) -> RunRecord | None:
    """The run that was started last on the branch, however it ended."""
    return _first(
        connection,
        "SELECT * FROM runs WHERE repository = ? AND branch = ? ORDER BY position DESC LIMIT 1",
        repository,
        branch,
    )


def newest_resumable(connection: sqlite3.Connection, target: str | None) -> RunRecord | None:
    """The newest unfinished run of that target or pipeline name that isn't superseded."""
    return _first(
        connection,
        "SELECT * FROM runs AS mine"  # noqa: S608 - a constant
        " WHERE status IN ('RUNNING', 'PAUSED', 'FAILED', 'TIMED_OUT')"
        " AND (?1 IS NULL OR ?1 IN (json_extract(plan, '$.target'), json_extract(plan, '$.name')))"
        f" AND NOT EXISTS ({_SUPERSEDING}) ORDER BY position DESC LIMIT 1",
        target,
    )


def refuse_busy_branch(connection: sqlite3.Connection, workspace: WorkspaceRef | None) -> None:
    """Raise BranchBusyError if an active run writes the workspace's branch."""
    if workspace is None:
        return
    holder = active_run(connection, workspace.repository, workspace.branch)
    if holder is not None:
        raise BranchBusyError(
            f"branch {workspace.branch!r} of {workspace.repository!r} belongs to run"
            f" {holder.id}, which is {holder.status}",
            fix="resume that run, cancel it, or wait for its end: one active run writes a branch",
        )


def refuse_superseded(connection: sqlite3.Connection, run: RunRecord) -> None:
    """Raise RunError if going on with the run would undo what another one had accepted since.

    To this run's next attempt that publication would look abandoned, and be reset away.
    """
    (other,) = connection.execute(
        f"SELECT ({_SUPERSEDING} ORDER BY accepted.rowid DESC LIMIT 1)"  # noqa: S608 - a constant
        " FROM runs AS mine WHERE mine.id = ?",
        (run.id,),
    ).fetchone()
    if other is not None:
        raise RunError(
            f"run {run.id} can't go on: run {other} has published on its branch since",
            fix="start a new run with --from-head, from where the branch is now",
        )


def _first(connection: sqlite3.Connection, sql: str, *values: str | None) -> RunRecord | None:
    row = connection.execute(sql, values).fetchone()
    return None if row is None else run_of(connection, row)
