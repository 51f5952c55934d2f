"""An executor's journal: a JSON line per step in the run's log, and the same news to the parent."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perago.flow.report import short_reason
from perago.worker.messages import Progressed, StepEnded, StepStarted
from perago.worker.printed import last_printed

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from pathlib import Path

    from perago.model.attempt import Execution
    from perago.model.outcome import Transfer
    from perago.worker.messages import FromExecutor

_PROGRESS_INTERVAL_SECONDS = 0.1

_FOLLOWED_STEPS = frozenset({"validate", "body", "report"})
"""Steps of every attempt whose end is followed at once by something else that is sent."""

_LASTING_STEPS = frozenset({"fetch", "body", "post", "stage.upload", "publish", "report"})
"""Steps that take a while, or whose beginning has to be known: that of the others isn't waited for,
and goes along with the next of these."""


class Outbox:
    """What is to be said to the supervisor, in as few messages as do no harm."""

    def __init__(self, connection: Connection, orphaned: Callable[[], None]) -> None:
        self._connection = connection
        self._orphaned = orphaned
        self._lock = threading.Lock()
        self._unsent: list[FromExecutor] = []

    def put(self, message: FromExecutor) -> None:
        with self._lock:
            self._unsent.append(message)

    def send(self, *last: FromExecutor) -> None:
        """Send what has gathered, and these. Without a supervisor there is nothing left to do."""
        with self._lock:
            unsent, self._unsent = [*self._unsent, *last], []
            try:
                self._connection.send(unsent)
            except (BrokenPipeError, ConnectionResetError):
                self._orphaned()


class ExecutorJournal:
    """Implements :class:`perago.ports.journal.Journal` for one attempt."""

    def __init__(
        self,
        execution: Execution,
        events_log: Path,
        output_log: Path,
        outbox: Outbox,
    ) -> None:
        attempt = execution.attempt
        self._bound = {
            "run": attempt.workflow_instance_id,
            "task": attempt.task_name,
            "reference": attempt.reference_task_name,
            "seq": attempt.seq,
            "iteration": attempt.iteration,
            "task_id": attempt.task_id,
            "retry": attempt.retry_count,
            "execution": execution.id,
        }
        self._events_log = events_log
        self._output_log = output_log
        self._outbox = outbox
        self._lock = threading.Lock()
        self._last_progress = 0.0

    def event(self, step: str, **fields: object) -> None:
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "step": step}
        event = {**line, **self._bound, **fields}
        append_line(self._events_log, json.dumps(event, ensure_ascii=False, default=str))
        self._outbox.put(StepEnded(event))
        if step not in _FOLLOWED_STEPS:
            self._outbox.send()

    def started(self, step: str) -> None:
        self._outbox.put(StepStarted(step))
        if step in _LASTING_STEPS:
            self._outbox.send()

    def progress(self, step: str, transfer: Transfer) -> None:
        with self._lock:
            now = time.monotonic()
            done = transfer.objects == transfer.total_objects
            if not done and now - self._last_progress < _PROGRESS_INTERVAL_SECONDS:
                return
            self._last_progress = now
        self._outbox.put(Progressed(step, transfer))
        self._outbox.send()

    def failure(self, error: BaseException) -> None:
        append_line(self._output_log, "".join(traceback.format_exception(error)).rstrip("\n"))
        self.event("failed", reason=short_reason(error))

    def printed(self) -> tuple[str, ...]:
        return last_printed(self._output_log)


def append_line(path: Path, line: str) -> None:
    """Append in one write, so that lines of several processes never mix.

    A log that can't be written, on a full disk say, must not decide how an attempt ends: it is
    only said on standard error.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)
    except OSError as error:
        sys.stderr.write(f"can't write {path}: {error.strerror}\n")
