"""What an attempt leaves in this machine's logs, its steps and its output, and how it gets there.

A worker may run millions of short tasks a day. A short attempt that succeeds, prints nothing and
uses no workspace leaves no files. Until it is known that an attempt is not such a one, its steps
stay in memory, and its output goes to a file of its executor, the spool, which becomes its log.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from perago.flow.report import short_reason
from perago.model.attempt import AttemptStep
from perago.worker.messages import StepEnd, StepProgress, StepStart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

    from perago.model.attempt import Execution
    from perago.model.progress import Progress
    from perago.worker.messages import FromExecutor, SharedStep

LINES = 200
LINE_LENGTH = 2000
_WINDOW_BYTES = 28 * 1024
"""Together with the line about what is left out, below the 32,000 characters that are sent:
otherwise that line would be cut off."""

_PROGRESS_INTERVAL_SECONDS = 0.1
_STEPS_OF_ALL = frozenset({AttemptStep.VALIDATE, AttemptStep.BODY, AttemptStep.REPORT})
"""Only an attempt with a workspace, or a failed one, has other steps."""
_LONG_STEPS = frozenset(
    {
        AttemptStep.FETCH,
        AttemptStep.BODY,
        AttemptStep.POST,
        AttemptStep.STAGE_UPLOAD,
        AttemptStep.PUBLISH,
        AttemptStep.REPORT,
    }
)
"""Steps that may take a while. The starts of the others are sent together with these."""
_STREAMS = (1, 2)


class AttemptLog:
    """The two files of one attempt: its events and its output.

    Without a spool, everything is written there at once.
    """

    def __init__(
        self, events: Path, printed: Path, output: OutputStreams, spool: Path | None
    ) -> None:
        self._events = events
        self._printed = printed
        self._output = output
        self._spool = spool
        self._lock = threading.Lock()
        self._unwritten: list[Mapping[str, object]] = []
        self.is_kept = spool is None

    def begin(self) -> None:
        """Send output here. Raises OSError if the file can't be opened."""
        if self.is_kept or not self._output.is_at(self._path):
            self._output.send_to(self._path)

    def restore_output(self) -> None:
        """Send output here again, whatever the task did to the streams."""
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
        """Write to the attempt's own files from now on, and move there what there is."""
        with self._lock:
            if self._spool is None or self.is_kept:
                return
            self.is_kept = True
            if not move_spool(self._spool, self._printed):
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


def last_printed(path: Path) -> tuple[str, ...]:
    """The last lines of an attempt's output; the first line says if something is left out."""
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
    note = f"… the last {len(kept)} lines of {size:,} bytes; the rest is in {path} on the worker"
    return (note, *kept) if cut else tuple(kept)


def move_spool(spool: Path, printed: Path) -> bool:
    """Make a spool the attempt's log, or append it; return whether the file is the same one.

    Never raises: what can't be moved stays in the spool.
    """
    try:
        printed.parent.mkdir(parents=True, exist_ok=True)
        if not printed.exists():
            spool.rename(printed)
            return True
        with spool.open("rb") as source, printed.open("ab") as log:
            shutil.copyfileobj(source, log)
        os.truncate(spool, 0)
    except OSError as error:
        sys.stderr.write(f"can't write {printed}: {error.strerror}\n")
        return True
    return False


def collect_spool(spool: Path, printed: Path | None) -> None:
    """Remove a dead executor's spool; first move it to the log of its attempt, ``printed``.

    What can't be moved stays.
    """
    try:
        if printed is not None and spool.stat().st_size:
            move_spool(spool, printed)
            if spool.stat().st_size:
                return
        spool.unlink()
    except OSError:  # it was never made, has become the log, or can't be removed now
        return


def append_line(path: Path, line: str) -> None:
    """Append in one write, so that lines of several processes never mix.

    A log that can't be written, on a full disk for example, must not change how an attempt ends:
    standard error says so.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(descriptor, f"{line}\n".encode("utf-8", "backslashreplace"))
        finally:
            os.close(descriptor)
    except OSError as error:
        sys.stderr.write(f"can't write {path}: {error.strerror}\n")


def _append_events(path: Path, events: Iterable[Mapping[str, object]]) -> None:
    lines = [json.dumps(event, ensure_ascii=False, default=str) for event in events]
    if lines:
        append_line(path, "\n".join(lines))


class OutputStreams:
    """The output of this process, from Python or from any library below it."""

    def __init__(self) -> None:
        self._file: os.stat_result | None = None
        self._streams: tuple[TextIO, TextIO] | None = None

    def send_to(self, path: Path) -> None:
        """Append output to this file from now on.

        Uses nothing of the earlier streams: a body may have closed them, or their descriptors.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._file = os.fstat(descriptor)
        for number in _STREAMS:
            if number != descriptor:
                os.dup2(descriptor, number)
        if descriptor not in _STREAMS:
            os.close(descriptor)
        self._flush()  # only now: the descriptors may have been closed before
        if not self._has_streams():
            self._streams = sys.stdout, sys.stderr = _text_to(1), _text_to(2)

    def is_at(self, path: Path) -> bool:
        """Whether output goes to the file that has this name now."""
        if not self._is_untouched() or self._file is None:
            return False
        try:
            return os.path.samestat(path.stat(), self._file)
        except OSError:
            return False

    def restore(self, path: Path) -> None:
        """Send output there again, if a body has redirected it."""
        if self._is_untouched():
            self._flush()
        else:
            self.send_to(path)

    def _is_untouched(self) -> bool:
        if self._file is None or not self._has_streams():
            return False
        try:
            return all(os.path.samestat(os.fstat(n), self._file) for n in _STREAMS)
        except OSError:
            return False

    def _has_streams(self) -> bool:
        streams = self._streams
        if streams is None or sys.stdout is not streams[0] or sys.stderr is not streams[1]:
            return False
        return not any(stream.closed for stream in streams)

    def _flush(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()


def _text_to(number: int) -> TextIO:
    return open(
        number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False
    )


class Outbox:
    """Sends messages to the supervisor, several at a time where that does no harm."""

    def __init__(self, connection: Connection, on_orphaned: Callable[[], None]) -> None:
        self._connection = connection
        self._on_orphaned = on_orphaned
        self._lock = threading.Lock()
        self._unsent: list[FromExecutor] = []

    def put(self, message: FromExecutor) -> None:
        """Send it together with the next ones."""
        with self._lock:
            self._unsent.append(message)

    def send(self, *last: FromExecutor) -> None:
        """Send what was put, and these. Calls ``on_orphaned`` if there is no supervisor."""
        with self._lock:
            unsent, self._unsent = [*self._unsent, *last], []
            try:
                self._connection.send(unsent)
            except (BrokenPipeError, ConnectionResetError):
                self._on_orphaned()


class ExecutorJournal:
    """Implements :class:`perago.ports.environment.Journal` for one attempt.

    Most steps of a short attempt are sent to the supervisor only when it ends; see :meth:`lasts`.
    """

    def __init__(
        self, execution: Execution, log: AttemptLog, outbox: Outbox, shared_step: SharedStep
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
        self._log = log
        self._outbox = outbox
        self._shared_step = shared_step
        self._lock = threading.Lock()
        self._last_progress = 0.0
        self._lasts = False

    def event(self, step: str, **fields: object) -> None:
        line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "step": str(step)}
        event = {**line, **self._bound, **fields}
        self._log.event(event)
        self._outbox.put(StepEnd(event))
        if step not in _STEPS_OF_ALL:
            self._log.keep()
            self._send_if_lasting()

    def started(self, step: AttemptStep) -> None:
        self._shared_step.step = step
        self._outbox.put(StepStart(step))
        if step not in _STEPS_OF_ALL:
            self._log.keep()
        if step is AttemptStep.PUBLISH:  # from here on the supervisor lets it finish
            self._outbox.send()
        elif step in _LONG_STEPS:
            self._send_if_lasting()

    def lasts(self) -> None:
        """The attempt is not short: write its log, and send its steps as they happen."""
        self._lasts = True
        self._log.keep()
        self._outbox.send()

    def progress(self, step: AttemptStep, progress: Progress) -> None:
        with self._lock:
            now = time.monotonic()
            is_too_soon = now - self._last_progress < _PROGRESS_INTERVAL_SECONDS
            if is_too_soon and not progress.is_whole:
                return
            self._last_progress = now
        self._outbox.put(StepProgress(step, progress))
        self._send_if_lasting()

    def failure(self, error: BaseException) -> None:
        self._log.failure("".join(traceback.format_exception(error)).rstrip("\n"))
        self.event("failed", reason=short_reason(error))

    def printed(self) -> tuple[str, ...]:
        return self._log.printed()

    def _send_if_lasting(self) -> None:
        if self._lasts:
            self._outbox.send()
