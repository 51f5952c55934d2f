"""Removes what dead executors left: directories, staging branches, Spark's files, old logs."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from perago.errors import PeragoError, StoreError
from perago.flow.attempt_directory import collect, leftovers
from perago.wiring import SPARK_LOGS, SPARK_SCRATCH
from perago.worker.messages import SPOOLS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perago.ports.store import Store


RUNNER_LOCK = "runner.lock"
"""The file in a run's logs that `perago run` holds while it works on the run."""
SETTLE_SECONDS = 15.0
"""How long a leftover is kept after it was found: a request to create its branch may still be in
flight, and would create it again after it was deleted."""
_ROUND_SECONDS = 5.0
_LOG_ROUND_SECONDS = 3600.0
LOG_DAYS = 14


def remove_leftovers(store: Store, attempts: Path) -> None:
    """Remove directories and branches. Never raises for the store: `perago gc` finds the rest."""
    for leftover in leftovers(attempts):
        with suppress(StoreError):
            collect(store, leftover)
    remove_spark_scratch(attempts)


def remove_spark_scratch(attempts: Path) -> None:
    """Remove the temporary files of dead processes' Sparks."""
    for scratch in attempts.glob(SPARK_SCRATCH):
        process = scratch.name.rpartition("-")[2]
        if process.isdecimal() and not _is_alive(int(process)):
            shutil.rmtree(scratch, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        return True
    return True


class Cleaner:
    """Cleans up in its own thread, so that an unreachable store delays nothing else.

    ``open_store`` is called when there is something to delete for the first time.
    """

    def __init__(self, open_store: Callable[[], Store], attempts: Path, logs: Path) -> None:
        self._open_store = open_store
        self._attempts = attempts
        self._logs = logs
        self._store: Store | None = None
        self._found_at: dict[Path, float] = {}
        self._logs_checked_at = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="cleaner")

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End the rounds and clean up a last time, for at most so long."""
        self._stop.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.wait(_ROUND_SECONDS):
            self._remove(settled_only=True)
            self._remove_old_logs()
        self._remove(settled_only=False)

    def _remove(self, *, settled_only: bool) -> None:
        now = time.monotonic()
        remove_spark_scratch(self._attempts)
        found = list(leftovers(self._attempts))
        self._found_at = {left.path: self._found_at.get(left.path, now) for left in found}
        for leftover in found:
            if settled_only and now - self._found_at[leftover.path] < SETTLE_SECONDS:
                continue
            with suppress(PeragoError, OSError):  # found again in the next round
                self._store = self._store or self._open_store()
                collect(self._store, leftover)

    def _remove_old_logs(self) -> None:
        now = time.monotonic()
        if now - self._logs_checked_at < _LOG_ROUND_SECONDS:
            return
        self._logs_checked_at = now
        oldest = time.time() - LOG_DAYS * 24 * 3600
        for directory in self._logs.glob("*/"):
            with suppress(OSError):
                # A run of `perago run` has no other record of its steps.
                is_local_run = (directory / RUNNER_LOCK).exists()
                if directory.stat().st_mtime < oldest and not is_local_run:
                    shutil.rmtree(directory, ignore_errors=True)
        # Output of executors that died with their supervisor, and Spark's logs.
        for file in (*self._logs.glob(SPOOLS), *self._logs.glob(SPARK_LOGS)):
            with suppress(OSError):
                if file.stat().st_mtime < oldest:
                    file.unlink()
