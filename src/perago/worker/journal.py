"""An executor's journal: each step goes to the attempt's record, and as news to the supervisor."""

from __future__ import annotations

import threading
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perago.flow.report import short_reason
from perago.worker.messages import Progressed, StepEnded, StepStarted

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from perago.model.attempt import Execution
    from perago.model.outcome import Headway
    from perago.worker.messages import FromExecutor
    from perago.worker.record import Record
    from perago.worker.whereabouts import Whereabouts

_PROGRESS_INTERVAL_SECONDS = 0.1

_STEPS_OF_ALL = frozenset({"validate", "body", "report"})
"""All other steps are of an attempt that works in a workspace, or of one that failed."""

_LASTING_STEPS = frozenset({"fetch", "body", "post", "stage.upload", "publish", "report"})
"""Steps that may take a while: the beginning of the others goes along with the next of these."""

_TOLD_AT_ONCE = "publish"
"""From here on an attempt is better left to finish; its supervisor may have something to say."""


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
    """Implements :class:`perago.ports.journal.Journal` for one attempt.

    Of an attempt that has only begun, next to nothing is told before its end: it may be over in a
    moment. See :meth:`lasts`.
    """

    def __init__(
        self, execution: Execution, record: Record, outbox: Outbox, whereabouts: Whereabouts
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
        self._record = record
        self._outbox = outbox
        self._whereabouts = whereabouts
        self._lock = threading.Lock()
        self._last_progress = 0.0
        self._lasts = False

    def event(self, step: str, **fields: object) -> None:
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "step": step}
        event = {**line, **self._bound, **fields}
        self._record.event(event)
        self._outbox.put(StepEnded(event))
        if step not in _STEPS_OF_ALL:
            self._record.keep()
            self._tell_if_it_lasts()

    def started(self, step: str) -> None:
        self._whereabouts.step = step
        self._outbox.put(StepStarted(step))
        if step not in _STEPS_OF_ALL:
            self._record.keep()
        if step == _TOLD_AT_ONCE:
            self._outbox.send()
        elif step in _LASTING_STEPS:
            self._tell_if_it_lasts()

    def lasts(self) -> None:
        """Keep a record of the attempt from now on, and tell the supervisor of each step."""
        self._lasts = True
        self._record.keep()
        self._outbox.send()

    def _tell_if_it_lasts(self) -> None:
        if self._lasts:
            self._outbox.send()

    def progress(self, step: str, headway: Headway) -> None:
        with self._lock:
            now = time.monotonic()
            done = headway.is_whole
            if not done and now - self._last_progress < _PROGRESS_INTERVAL_SECONDS:
                return
            self._last_progress = now
        self._outbox.put(Progressed(step, headway))
        self._tell_if_it_lasts()

    def failure(self, error: BaseException) -> None:
        self._record.failure("".join(traceback.format_exception(error)).rstrip("\n"))
        self.event("failed", reason=short_reason(error))

    def printed(self) -> tuple[str, ...]:
        return self._record.printed()
