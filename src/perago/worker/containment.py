"""What a task's body does to the process it runs in, kept from what comes after it."""

from __future__ import annotations

import copy
import functools
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perago.errors import TaskFailed

if TYPE_CHECKING:
    from pathlib import Path

    from perago.declare.task import AnyTask


def contained(task: AnyTask, output_log: Path) -> AnyTask:
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
            send_output_to(output_log)
            os.chdir(directory)
            if dict(os.environ) != environment:
                os.environ.clear()
                os.environ.update(environment)

    kept = copy.copy(task)
    kept.body = run
    return kept


def send_output_to(path: Path) -> None:
    """Send what is printed, from Python or from any library below it, to the end of a file.

    Needs nothing of the streams there were: a body may have closed them, or the descriptors below.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for number in (1, 2):
        if number != descriptor:
            os.dup2(descriptor, number)
    if descriptor not in (1, 2):
        os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):  # only now: there may have been nothing to write to
        with suppress(OSError, ValueError):
            stream.flush()
    sys.stdout, sys.stderr = (
        open(number, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115 - they stay open
        for number in (1, 2)
    )
