"""Looking on while somebody else's workers run a workflow, until it has ended."""

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


UNATTENDED_SECONDS = 60.0
"""How long nobody has to have asked for a task before it is said that no worker is there."""
_BACKOFF = Backoff(first=0.3, longest=2.0, growth=1.2)
_SECONDS_BETWEEN_ROLL_CALLS = 5.0


@dataclass(frozen=True, slots=True)
class Sight:
    """A run as it was last seen.

    ``trouble`` says why it can't be seen right now. ``unattended`` are the tasks that wait for a
    worker while none asks for them.
    """

    record: RunRecord
    trouble: str | None = None
    unattended: tuple[str, ...] = ()


def follow(
    runs: SharedRuns,
    record: RunRecord,
    *,
    now: Callable[[], float] = time.time,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[Sight]:
    """The run again and again, the last time when it has ended.

    An orchestrator that doesn't answer is asked until it does. Raises whatever else it says no
    with.
    """
    seconds, roll_call_at = _BACKOFF.first, 0.0
    unattended: tuple[str, ...] = ()
    while True:
        trouble = None
        try:
            seen = runs.get(record.id)
            if now() >= roll_call_at:
                _have_lost_leases_noticed(runs, seen)
                unattended = unattended_tasks(runs, waiting_tasks(seen, now()), now())
                roll_call_at = now() + _SECONDS_BETWEEN_ROLL_CALLS
            changed, record = seen.attempts != record.attempts, seen
        except OrchestratorUnavailableError as error:
            trouble, changed = error.message, False
        yield Sight(record, trouble, unattended)
        if trouble is None and not record.status.is_active:
            return
        seconds = _BACKOFF.first if changed else _BACKOFF.after(seconds)
        pause(seconds)


def _have_lost_leases_noticed(runs: SharedRuns, record: RunRecord) -> None:
    """An orchestrator may look at a workflow only now and then; who follows it wants it to know."""
    if any(a.status is TaskStatus.IN_PROGRESS for a in record.attempts):
        runs.look_again(record.id)


def waiting_tasks(record: RunRecord, now: float) -> list[str]:
    """The tasks of a run that need a worker: those that are due, and at its start all of them.

    Later than that a worker that doesn't ask may be busy with what comes before.
    """
    names = [
        a.attempt.task_name
        for a in record.attempts
        if a.status is TaskStatus.SCHEDULED and a.due_at <= now
    ]
    if record.status.is_active and not any(a.worker_id for a in record.attempts):
        names += [step.task_name for step in record.plan.steps]
    return list(dict.fromkeys(names))


def unattended_tasks(runs: SharedRuns, names: Sequence[str], now: float) -> tuple[str, ...]:
    """Those of ``names`` that no worker has asked for lately."""
    polls: Mapping[str, tuple[str, float]] = runs.last_polls(names) if names else {}
    return tuple(
        name for name in names if name not in polls or now - polls[name][1] > UNATTENDED_SECONDS
    )


class Turn(StrEnum):
    """What became of an attempt between two looks at its run."""

    SCHEDULED = "scheduled"
    STARTED = "started"
    ENDED = "ended"


def turns(before: RunRecord | None, after: RunRecord) -> Iterator[tuple[Turn, AttemptRecord]]:
    """What happened between two looks, in the order it did; without a first look, all of it.

    An attempt that did more than one thing meanwhile is told of by the last one alone.
    """
    known = {a.attempt.task_id: a for a in before.attempts} if before else {}
    for record in after.attempts:
        old = known.get(record.attempt.task_id)
        was = (_turn(old), old.worker_id, old.poll_count) if old else None
        if was != (_turn(record), record.worker_id, record.poll_count):
            yield _turn(record), record


def _turn(record: AttemptRecord) -> Turn:
    if record.status is TaskStatus.SCHEDULED:
        return Turn.SCHEDULED
    return Turn.STARTED if record.status is TaskStatus.IN_PROGRESS else Turn.ENDED
