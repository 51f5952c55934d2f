"""What a task's body does to the process it runs in, kept from what comes after it."""

from __future__ import annotations

import copy
import functools
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from perago.errors import TaskFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perago.declare.task import AnyTask


_STREAMS = (1, 2)


def contained(task: AnyTask, restore_output: Callable[[], None]) -> AnyTask:
    """The same task, whose body leaves the process as it found it, however it ends.

    Put back are the working directory, the environment and where output goes. A child that the
    body forked ends where the body ends: it must not go on to publish a second time. A
    KeyboardInterrupt is the body's own failure, because nobody's Ctrl-C comes here.
    """
    body = task.body

    @functools.wraps(body)
    def run(*arguments: object) -> Any:
        process, directory, environment = os.getpid(), os.getcwd(), dict(os.environ)  # noqa: PTH109
        try:
            return body(*arguments)
        except KeyboardInterrupt as error:
            raise TaskFailed("the task body raised KeyboardInterrupt") from error
        finally:
            if os.getpid() != process:
                os._exit(0)
            restore_output()
            os.chdir(directory)
            if os.environ != environment:
                os.environ.clear()
                os.environ.update(environment)

    kept = copy.copy(task)
    kept.body = run
    return kept


class Output:
    """Where what is printed goes, from Python or from any library below it."""

    def __init__(self) -> None:
        self._file: os.stat_result | None = None
        self._streams: tuple[TextIO, TextIO] | None = None

    def send_to(self, path: Path) -> None:
        """To the end of a file from now on.

        Needs nothing of the streams there were: a body may have closed them, or the descriptors
        below.
        """
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._file = os.fstat(descriptor)
        for number in _STREAMS:
            if number != descriptor:
                os.dup2(descriptor, number)
        if descriptor not in _STREAMS:
            os.close(descriptor)
        self._flush()  # only now: there may have been nothing to write to
        if not self._has_streams():
            self._streams = sys.stdout, sys.stderr = _text_to(1), _text_to(2)

    def is_at(self, path: Path) -> bool:
        """Whether what is printed goes to the file that has this name now."""
        if not self._is_untouched() or self._file is None:
            return False
        try:
            return os.path.samestat(path.stat(), self._file)
        except OSError:
            return False

    def restore(self, path: Path) -> None:
        """Send it there again, if it goes anywhere else meanwhile."""
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
