"""Runs one pipeline run to its end on this machine, from the embedded queue."""

from __future__ import annotations

import os
import socket
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from perago.errors import RunBusyError, RunError
from perago.file_lock import is_locked, owned
from perago.model.run import RunStatus
from perago.wiring import open_queue, open_store, system_clock
from perago.worker.cleanup import RUNNER_LOCK, remove_leftovers
from perago.worker.events import Observers, RetryAwaited
from perago.worker.lineage import lineage_observers
from perago.worker.messages import ExecutorConfig
from perago.worker.orchestrator_link import InlineLink
from perago.worker.signals import StopSignal
from perago.worker.slot import Slot
from perago.worker.supervisor import Supervisor, TaskTarget, WorkerPaths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.attempt import Attempt
    from perago.model.run import RunRecord
    from perago.ports.orchestrator import Runs
    from perago.ports.store import Store
    from perago.settings import Settings
    from perago.worker.events import Observer

_TICK_SECONDS = 0.2


def run_pipeline(
    settings: Settings, run_id: str, observer: Observer, *, resume: bool = False
) -> RunRecord:
    """Work on a run until it ends or a signal interrupts it; return its record then.

    An interrupted run is PAUSED: a publication is finished first, within its budget's grace, and
    anything else is stopped. With ``resume``, a run that is not RUNNING is resumed first.

    Raises RunBusyError if another process works on the run.
    """
    with (
        StopSignal().watched() as stop_signal,
        closing(open_queue(settings, only_run=run_id)) as queue,
        closing(open_store(settings)) as store,
        held_by_us(settings, run_id),
        lineage_observers(settings) as lineage,
    ):
        observer = Observers(observer, *lineage)
        if resume:
            queue.resume(run_id)
        supervisor = _supervisor(settings, queue.get(run_id), queue, store, observer)
        supervisor.start()
        try:
            while not _is_over(queue.get(run_id), supervisor):
                supervisor.tick(_TICK_SECONDS)
                _announce_retry(queue, supervisor, run_id, observer)
                grace_seconds = supervisor.grace_seconds if supervisor.is_publishing else 0
                if stop_signal.is_due(grace_seconds):
                    with suppress(RunError):  # the run has ended meanwhile, and stays ended
                        queue.pause(run_id, "interrupted")
                    break
        finally:
            supervisor.stop()
        # Only now: until its executor is gone, an attempt may still end a paused run.
        return queue.get(run_id)


def _supervisor(
    settings: Settings, record: RunRecord, queue: Runs, store: Store, observer: Observer
) -> Supervisor:
    clock = system_clock()
    steps = {step.reference: step for step in record.plan.steps}
    link = InlineLink(queue, clock, worker_id=f"{socket.gethostname()}-{os.getpid()}")
    link.set_tasks([step.task_name for step in steps.values()])

    def find_task(attempt: Attempt) -> TaskTarget:
        step = steps[attempt.reference_task_name]
        return TaskTarget(step.module, step.controls)

    return Supervisor(
        link,
        [Slot(ExecutorConfig(settings), clock, observer)],
        find_task,
        paths=WorkerPaths(
            logs_of=lambda _attempt: settings.logs / record.id,
            clean_up=lambda: remove_leftovers(store, settings.attempts),
            requests_outlive_us=store.outlives_callers,
            on="" if settings.store == "embedded" else f" --on {settings.store}",
        ),
        clock=clock,
        observer=observer,
    )


def _is_over(record: RunRecord, supervisor: Supervisor) -> bool:
    """An accepted report ends the run a moment before the executor has cleaned up."""
    return record.status is not RunStatus.RUNNING and not supervisor.is_busy


def _announce_retry(queue: Runs, supervisor: Supervisor, run_id: str, observer: Observer) -> None:
    if supervisor.is_busy:
        return
    due = queue.next_due(run_id)
    if due is not None and (seconds := due - system_clock().now()) > 0:
        observer.observe(RetryAwaited(seconds))


@contextmanager
def held_by_us(settings: Settings, run_id: str) -> Iterator[None]:
    """Hold a run for this process. Raises RunBusyError if another process holds it."""

    def taken(owner: str) -> RunBusyError:
        return RunBusyError(
            f"process {owner} is already working on run {run_id}",
            fix=f"wait for it, or pause the run: kill {owner}",
        )

    with owned(_lock_path(settings, run_id), taken):
        yield


def is_held(settings: Settings, run_id: str) -> bool:
    """Whether a process works on this run now."""
    return is_locked(_lock_path(settings, run_id))


def _lock_path(settings: Settings, run_id: str) -> Path:
    return settings.logs / run_id / RUNNER_LOCK
