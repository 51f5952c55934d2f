"""Runs one pipeline run to its end on this machine, from the embedded queue."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from perago.errors import RunBusyError, RunError
from perago.model.run import RunStatus
from perago.wiring import open_queue, open_store, system_clock
from perago.worker.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType

    from perago.model.run import RunRecord
    from perago.ports.runs import Runs
    from perago.settings import Settings
    from perago.worker.watcher import Watcher

_TICK_SECONDS = 0.2


class Interruption:
    """Ctrl-C and SIGTERM as a question to ask: never in the middle of a step."""

    def __init__(self) -> None:
        self.count = 0

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1

    @contextmanager
    def watched(self) -> Iterator[Interruption]:
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, self._note) for number in numbers]
        try:
            yield self
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)


def run_pipeline(
    settings: Settings, run_id: str, watcher: Watcher, *, resume: bool = False
) -> RunRecord:
    """Work on a run until it is over, or until someone interrupts; returns where it stands.

    With ``resume`` it is set going again first, once it is certain that nobody works on it.

    An interrupted run is PAUSED: a publication under way is finished, anything else broken off.
    Raises RunBusyError if another process works on it.
    """
    queue = open_queue(settings, only_run=run_id)
    with held_by_us(settings, run_id), Interruption().watched() as interruption:
        if resume:
            queue.resume(run_id)
        supervisor = Supervisor(
            settings,
            queue,
            open_store(settings),
            system_clock(),
            watcher,
            steps={step.reference: step for step in queue.get(run_id).plan.steps},
            log_directory=settings.logs / run_id,
            worker_id=f"{socket.gethostname()}-{os.getpid()}",
        )
        supervisor.start()
        try:
            while not _is_over(queue.get(run_id), supervisor):
                supervisor.tick(_TICK_SECONDS)
                _announce_waiting(queue, supervisor, run_id, watcher)
                if interruption.count and (not supervisor.publishing or interruption.count > 1):
                    with suppress(RunError):  # it ended meanwhile, and stays as it ended
                        queue.pause(run_id, "interrupted")
                    break
        finally:
            supervisor.stop()
        # Only now: until its executor is gone, an attempt may still end a paused run.
        return queue.get(run_id)


def _is_over(record: RunRecord, supervisor: Supervisor) -> bool:
    """An accepted report ends the run a moment before its executor has cleaned up."""
    return record.status is not RunStatus.RUNNING and not supervisor.busy


def _announce_waiting(queue: Runs, supervisor: Supervisor, run_id: str, watcher: Watcher) -> None:
    if supervisor.busy:
        return
    due = queue.next_due(run_id)
    if due is not None and (seconds := due - system_clock().now()) > 0:
        watcher.waiting(seconds)


@contextmanager
def held_by_us(settings: Settings, run_id: str) -> Iterator[None]:
    """Hold a run for this process; the lock goes with the process, however that ends."""
    path = _lock_path(settings, run_id)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode() or "unknown"
            raise RunBusyError(
                f"run {run_id} is being worked on by process {owner}",
                fix="wait for it, or stop it there with Ctrl-C",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_held(settings: Settings, run_id: str) -> bool:
    """Whether some process is working on this run right now."""
    try:
        with held_by_us(settings, run_id):
            return False
    except RunBusyError:
        return True


def _lock_path(settings: Settings, run_id: str) -> Path:
    logs = settings.logs / run_id
    logs.mkdir(parents=True, exist_ok=True)
    return logs / "runner.lock"
