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
from typing import TYPE_CHECKING

from perago.worker.printed import last_printed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from perago.worker.containment import Output

SPOOLS = ".printed-*"


def spool_of(logs: Path, executor: int) -> Path:
    """The spool of the executor with this process id."""
    return logs / SPOOLS.replace("*", str(executor))


class Record:
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
