"""What an attempt leaves in the logs of this machine: its steps, and what it printed.

A worker may run millions of short tasks a day. One that is over at once, went well, printed nothing
and touched no workspace leaves nothing: until it turns out otherwise, its steps are kept in memory,
and what it prints goes to a file of its executor's, the spool, that then becomes its log.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perago.flow.report import short_reason
from perago.model.attempt import AttemptStep
from perago.worker.messages import StepEnd, StepProgress, StepStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

    from perago.model.attempt import Execution
    from perago.model.progress import Progress
    from perago.worker.body_isolation import Output
    from perago.worker.executor_handle import SharedStep
    from perago.worker.messages import FromExecutor


# --- The end of what an attempt printed, as much as is worth sending along ---
LINES = 200
LINE_LENGTH = 2000
_WINDOW_BYTES = 28 * 1024
"""With the line that says what is left out, less than the 32,000 characters that are sent along:
whoever cuts further, cuts that line."""


def last_printed(path: Path) -> tuple[str, ...]:
    """The last lines of an attempt's log. What is left out is said in the first of them."""
    try:
        with path.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(0, size - _WINDOW_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return ()
    lines = text.splitlines()
    cut = size > _WINDOW_BYTES
    if cut:
        lines = lines[1:] or lines  # the first one may be half a line
    if len(lines) > LINES:
        lines, cut = lines[-LINES:], True
    kept = [line if len(line) <= LINE_LENGTH else line[: LINE_LENGTH - 1] + "…" for line in lines]
    said = f"… the last {len(kept)} lines of {size:,} bytes; the rest is in {path} on the worker"
    return (said, *kept) if cut else tuple(kept)


class AttemptLog:
    """Without a spool everything is written where it belongs, at once."""

    def __init__(self, events: Path, printed: Path, output: Output, spool: Path | None) -> None:
        self._events = events
        self._printed = printed
        self._output = output
        self._spool = spool
        self._lock = threading.Lock()
        self._unwritten: list[Mapping[str, object]] = []
        self.is_kept = spool is None

    def begin(self) -> None:
        """Raises OSError if there is nowhere to print to."""
        if self.is_kept or not self._output.is_at(self._path):
            self._output.send_to(self._path)

    def restore_output(self) -> None:
        """Whatever the task did to the process, what is printed goes here again."""
        self._output.restore(self._path)

    def event(self, fields: Mapping[str, object]) -> None:
        with self._lock:
            if self.is_kept:
                _append_events(self._events, (fields,))
            else:
                self._unwritten.append(fields)

    def failure(self, trace: str) -> None:
        self.keep()
        append_line(self._printed, trace)

    def printed(self) -> tuple[str, ...]:
        return last_printed(self._path) if self._has_printed() else ()

    def keep(self) -> None:
        """Put what there is where it belongs, and write there from now on."""
        with self._lock:
            if self._spool is None or self.is_kept:
                return
            self.is_kept = True
            if not claim(self._spool, self._printed):
                self._output.send_to(self._printed)
            _append_events(self._events, self._unwritten)

    def end(self) -> None:
        if self._has_printed():
            self.keep()

    @property
    def _path(self) -> Path:
        return self._printed if self._spool is None or self.is_kept else self._spool

    def _has_printed(self) -> bool:
        try:
            return self._path.stat().st_size > 0
        except OSError:
            return False


def claim(spool: Path, printed: Path) -> bool:
    """Make a spool the log that it belongs to, if need be at its end; whether the file is the same.

    Never raises: what can't be put there stays in the spool.
    """
    try:
        printed.parent.mkdir(parents=True, exist_ok=True)
        if not printed.exists():
            spool.rename(printed)
            return True
        with spool.open("rb") as said, printed.open("ab") as log:
            shutil.copyfileobj(said, log)
        os.truncate(spool, 0)
    except OSError as error:
        sys.stderr.write(f"can't write {printed}: {error.strerror}\n")
        return True
    return False


def release(spool: Path, printed: Path | None) -> None:
    """See to the spool of an executor that is gone; ``printed`` is the log of what it was at.

    What can't be put there stays.
    """
    try:
        if printed is not None and spool.stat().st_size:
            claim(spool, printed)
            if spool.stat().st_size:
                return
        spool.unlink()
    except OSError:  # it was never made, has become the log, or can't be removed now
        return


def _append_events(path: Path, events: Iterable[Mapping[str, object]]) -> None:
    lines = [json.dumps(event, ensure_ascii=False, default=str) for event in events]
    if lines:
        append_line(path, "\n".join(lines))


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


# --- An executor's journal: each step goes to the attempt's record, and as news to the ---
_PROGRESS_INTERVAL_SECONDS = 0.1
_STEPS_OF_ALL = frozenset({AttemptStep.VALIDATE, AttemptStep.BODY, AttemptStep.REPORT})
"""All other steps are of an attempt that works in a workspace, or of one that failed."""
_LASTING_STEPS = frozenset(
    {
        AttemptStep.FETCH,
        AttemptStep.BODY,
        AttemptStep.POST,
        AttemptStep.STAGE_UPLOAD,
        AttemptStep.PUBLISH,
        AttemptStep.REPORT,
    }
)
"""Steps that may take a while: the beginning of the others goes along with the next of these."""
_TOLD_AT_ONCE = AttemptStep.PUBLISH
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
    """Implements :class:`perago.ports.environment.Journal` for one attempt.

    Of an attempt that has only begun, next to nothing is told before its end: it may be over in a
    moment. See :meth:`lasts`.
    """

    def __init__(
        self, execution: Execution, record: AttemptLog, outbox: Outbox, whereabouts: SharedStep
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
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "step": str(step)}
        event = {**line, **self._bound, **fields}
        self._record.event(event)
        self._outbox.put(StepEnd(event))
        if step not in _STEPS_OF_ALL:
            self._record.keep()
            self._tell_if_it_lasts()

    def started(self, step: AttemptStep) -> None:
        self._whereabouts.step = step
        self._outbox.put(StepStart(step))
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

    def progress(self, step: AttemptStep, progress: Progress) -> None:
        with self._lock:
            now = time.monotonic()
            done = progress.is_whole
            if not done and now - self._last_progress < _PROGRESS_INTERVAL_SECONDS:
                return
            self._last_progress = now
        self._outbox.put(StepProgress(step, progress))
        self._tell_if_it_lasts()

    def failure(self, error: BaseException) -> None:
        self._record.failure("".join(traceback.format_exception(error)).rstrip("\n"))
        self.event("failed", reason=short_reason(error))

    def printed(self) -> tuple[str, ...]:
        return self._record.printed()
