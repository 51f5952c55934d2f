"""Runs one pipeline run to its end on this machine, from the embedded queue."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import time
from contextlib import closing, contextmanager, suppress
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
_LOCK_SECONDS = 1.0
_LOCK_PAUSE_SECONDS = 0.02


class Interruption:
    """Ctrl-C and SIGTERM as a question to ask: never in the middle of a step."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._since = self._since or time.monotonic()
        self._count += 1

    def is_due(self, grace_seconds: float) -> bool:
        """Whether to stop now: the first one waits out the grace, a second one doesn't."""
        if not self._count:
            return False
        return self._count > 1 or time.monotonic() - self._since >= grace_seconds

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

    An interrupted run is PAUSED: a publication under way is finished within its budget's grace,
    anything else broken off.
    Raises RunBusyError if another process works on it.
    """
    with (
        closing(open_queue(settings, only_run=run_id)) as queue,
        closing(open_store(settings)) as store,
        held_by_us(settings, run_id),
        Interruption().watched() as interruption,
    ):
        if resume:
            queue.resume(run_id)
        supervisor = Supervisor(
            settings,
            queue,
            store,
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
                if interruption.is_due(supervisor.grace_seconds if supervisor.publishing else 0):
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
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked_within(descriptor, _LOCK_SECONDS):
            owner = os.pread(descriptor, 20, 0).decode() or "unknown"
            raise RunBusyError(
                f"run {run_id} is being worked on by process {owner}",
                fix="wait for it, or stop it there with Ctrl-C",
            )
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _locked_within(descriptor: int, seconds: float) -> bool:
    """Whoever only asks holds the lock for a moment, so one refusal proves nothing."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_PAUSE_SECONDS)
        else:
            return True


def is_held(settings: Settings, run_id: str) -> bool:
    """Whether some process is working on this run right now."""
    try:
        descriptor = os.open(_lock_path(settings, run_id), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lock_path(settings: Settings, run_id: str) -> Path:
    return settings.logs / run_id / "runner.lock"
