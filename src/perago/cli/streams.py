"""Standard output and error, whose reader may leave before we are done."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

STARTING = "starting"
"""What a command says until it has something better to show."""


def tell(line: str) -> None:
    """A line on standard error; lost, and so is all that follows, once it can't be written.

    A run goes on whether or not anybody reads about it: a closed pipe is no reason to stop it, and
    neither is a full disk below a log file.
    """
    try:
        click.echo(line, err=True)
    except OSError:
        _to_nowhere(sys.stderr)


@contextmanager
def while_read() -> Iterator[None]:
    """Write to standard output until its reader has seen enough, as ``head`` has after some lines.

    What is left is dropped, and the command ends with the exit code it has earned: click, rich and
    Python's own last flush would each make another one of it.
    """
    try:
        yield
    except BrokenPipeError:
        _to_nowhere(sys.stdout)


@contextmanager
def meanwhile(doing: str) -> Iterator[None]:
    """Say what takes a moment, on a terminal only, and leave no trace of it."""
    if not is_terminal(sys.stderr):
        yield
        return
    click.echo(click.style(f"{doing} …", dim=True), nl=False, err=True)
    try:
        yield
    finally:
        clear_line()


def clear_line() -> None:
    """Make room on the terminal's present line, whatever :func:`meanwhile` says there."""
    click.echo("\r\x1b[K", nl=False, err=True)


def is_terminal(stream: TextIO | None) -> bool:
    """None is what Python has where a standard stream was closed from the start."""
    return stream is not None and stream.isatty()


def _to_nowhere(stream: TextIO) -> None:
    """What its buffer still holds goes there too, so that no later flush can fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
