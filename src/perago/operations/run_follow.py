"""Follows a run that workers elsewhere execute, until it has ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from perago.backoff import Backoff
from perago.errors import OrchestratorUnavailableError
from perago.model.attempt import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from perago.model.run import AttemptRecord, RunRecord
    from perago.ports.orchestrator import SharedRuns


UNPOLLED_SECONDS = 60.0
"""A task that no worker has polled for this long has no worker."""
_BACKOFF = Backoff(first=0.3, longest=2.0, growth=1.2)
_SECONDS_BETWEEN_WORKER_CHECKS = 5.0


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """A run as it was last read.

    ``problem`` says why it can't be read right now. ``unpolled`` are the tasks that wait for a
    worker although no worker polls for them.
    """

    record: RunRecord
    problem: str | None = None
    unpolled: tuple[str, ...] = ()


def follow(
    runs: SharedRuns,
    record: RunRecord,
    *,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[RunSnapshot]:
    """Read the run again and again; the last snapshot is of the ended run.

    While the orchestrator is unreachable, polling continues. Any other error it raises ends this.
    """
    seconds, check_workers_at = _BACKOFF.first, 0.0
    unpolled: tuple[str, ...] = ()
    while True:
        problem = None
        try:
            seen = runs.get(record.id)
            if now() >= check_workers_at:
                _have_expired_leases_noticed(runs, seen)
                unpolled = unpolled_tasks(runs, waiting_tasks(seen, now()), now())
                check_workers_at = now() + _SECONDS_BETWEEN_WORKER_CHECKS
            changed, record = seen.attempts != record.attempts, seen
        except OrchestratorUnavailableError as error:
            problem, changed = error.message, False
        yield RunSnapshot(record, problem, unpolled)
        if problem is None and not record.status.is_active:
            return
        seconds = _BACKOFF.first if changed else _BACKOFF.after(seconds)
        pause(seconds)


def _have_expired_leases_noticed(runs: SharedRuns, record: RunRecord) -> None:
    """Have the orchestrator look at the run now: by itself it may do so only now and then."""
    if any(a.status is TaskStatus.IN_PROGRESS for a in record.attempts):
        runs.look_again(record.id)


def waiting_tasks(record: RunRecord, now: float) -> list[str]:
    """The tasks of a run that need a worker: the due ones and, until its first poll, all of them.

    After the first poll, a worker that doesn't poll may be busy with an earlier step.
    """
    names = [
        a.attempt.task_name
        for a in record.attempts
        if a.status is TaskStatus.SCHEDULED and a.due_at <= now
    ]
    if record.status.is_active and not any(a.worker_id for a in record.attempts):
        names += [step.task_name for step in record.plan.steps]
    return list(dict.fromkeys(names))


def unpolled_tasks(runs: SharedRuns, names: Sequence[str], now: float) -> tuple[str, ...]:
    """Those of ``names`` that no worker has polled in the last UNPOLLED_SECONDS."""
    polls: Mapping[str, tuple[str, float]] = runs.last_polls(names) if names else {}
    return tuple(
        name for name in names if name not in polls or now - polls[name][1] > UNPOLLED_SECONDS
    )


class AttemptChange(StrEnum):
    """The latest state that an attempt reached between two snapshots."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"


def attempt_changes(
    before: RunRecord | None, after: RunRecord
) -> Iterator[tuple[AttemptChange, AttemptRecord]]:
    """What happened between two snapshots, in order; everything if ``before`` is None.

    Of an attempt that changed more than once, only the latest change is listed.
    """
    known = {a.attempt.task_id: a for a in before.attempts} if before else {}
    for record in after.attempts:
        old = known.get(record.attempt.task_id)
        was = (_state(old), old.worker_id, old.poll_count) if old else None
        if was != (_state(record), record.worker_id, record.poll_count):
            yield _state(record), record


def _state(record: AttemptRecord) -> AttemptChange:
    if record.status is TaskStatus.SCHEDULED:
        return AttemptChange.SCHEDULED
    if record.status is TaskStatus.IN_PROGRESS:
        return AttemptChange.STARTED
    return AttemptChange.ENDED
