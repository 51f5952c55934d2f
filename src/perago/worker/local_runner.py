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
from perago.worker.cleanup import RUNNER_LOCK, clear_leftovers
from perago.worker.events import Observers, RetryAwaited
from perago.worker.messages import ExecutorConfig
from perago.worker.observers import lineage
from perago.worker.orchestrator_link import InlineLink
from perago.worker.signals import StopSignal
from perago.worker.slot import Slot
from perago.worker.supervisor import Served, Supervisor, WorkerPaths

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.model.run import RunRecord, StepPlan
    from perago.ports.orchestrator import Runs
    from perago.settings import Settings
    from perago.worker.events import Observer


_TICK_SECONDS = 0.2


def run_pipeline(
    settings: Settings, run_id: str, watcher: Observer, *, resume: bool = False
) -> RunRecord:
    """Work on a run until it is over, or until someone interrupts; returns where it stands.

    With ``resume`` it is set going again first, once it is certain that nobody works on it.

    An interrupted run is PAUSED: a publication under way is finished within its budget's grace,
    anything else broken off.
    Raises RunBusyError if another process works on it.
    """
    with (
        StopSignal().watched() as interruption,
        closing(open_queue(settings, only_run=run_id)) as queue,
        closing(open_store(settings)) as store,
        held_by_us(settings, run_id),
        lineage(settings) as also_watching,
    ):
        watcher = Observers(watcher, *also_watching)
        if resume:
            queue.resume(run_id)
        clock = system_clock()
        steps = {step.reference: step for step in queue.get(run_id).plan.steps}
        desk = InlineLink(queue, clock, worker_id=f"{socket.gethostname()}-{os.getpid()}")
        desk.serve([step.task_name for step in steps.values()])
        supervisor = Supervisor(
            desk,
            [Slot(ExecutorConfig(settings), clock, watcher)],
            lambda attempt: _served(steps[attempt.reference_task_name]),
            paths=WorkerPaths(
                logs=lambda _attempt: settings.logs / run_id,
                clear=lambda: clear_leftovers(store, settings.attempts),
                requests_outlive_us=store.outlives_callers,
                on="" if settings.store == "embedded" else f" --on {settings.store}",
            ),
            clock=clock,
            watcher=watcher,
        )
        supervisor.start()
        try:
            while not _is_over(queue.get(run_id), supervisor):
                supervisor.tick(_TICK_SECONDS)
                _announce_waiting(queue, supervisor, run_id, watcher)
                if interruption.is_due(supervisor.grace_seconds if supervisor.publishing else 0):
                    with suppress(RunError):  # it ended meanwhile, and stays as it ended
                        queue.pause(run_id, "interrupted")
                    break
        finally:
            supervisor.stop()
        # Only now: until its executor is gone, an attempt may still end a paused run.
        return queue.get(run_id)


def _served(step: StepPlan) -> Served:
    return Served(step.module, step.controls)


def _is_over(record: RunRecord, supervisor: Supervisor) -> bool:
    """An accepted report ends the run a moment before its executor has cleaned up."""
    return record.status is not RunStatus.RUNNING and not supervisor.busy


def _announce_waiting(queue: Runs, supervisor: Supervisor, run_id: str, watcher: Observer) -> None:
    if supervisor.busy:
        return
    due = queue.next_due(run_id)
    if due is not None and (seconds := due - system_clock().now()) > 0:
        watcher.observe(RetryAwaited(seconds))


@contextmanager
def held_by_us(settings: Settings, run_id: str) -> Iterator[None]:
    """Hold a run for this process; the lock goes with the process, however that ends."""

    def taken(owner: str) -> RunBusyError:
        return RunBusyError(
            f"run {run_id} is being worked on by process {owner}",
            fix="wait for it, or stop it there with Ctrl-C",
        )

    with owned(_lock_path(settings, run_id), taken):
        yield


def is_held(settings: Settings, run_id: str) -> bool:
    """Whether some process is working on this run right now."""
    return is_locked(_lock_path(settings, run_id))


def _lock_path(settings: Settings, run_id: str) -> Path:
    return settings.logs / run_id / RUNNER_LOCK
