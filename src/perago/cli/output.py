"""Standard output and error, whose reader may leave before we are done."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rich.table import Table
    from rich.text import Text


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


# --- Tables for people: readable at 80 columns, and never a cut-off id ---
_STATUS_STYLES = {
    "COMPLETED": "green",
    "ok": "green",
    "running": "green",
    "stopped": "dim",
    "added": "green",
    "RUNNING": "cyan",
    "IN_PROGRESS": "cyan",
    "PAUSED": "yellow",
    "SCHEDULED": "dim",
    "CANCELED": "yellow",
    "warn": "yellow",
    "changed": "yellow",
}


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text]], *, whole: int = 1
) -> Table:
    """A plain table. The first ``whole`` columns keep their width, the others wrap."""
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    made = Table(box=None, pad_edge=False, header_style="dim")
    for place, heading in enumerate(headings):
        if place < whole:
            widest = max((row[place].cell_len for row in cells), default=0)
            made.add_column(heading, no_wrap=True, min_width=max(widest, len(heading)))
        else:
            made.add_column(heading, overflow="fold")
    for row in cells:
        made.add_row(*row)
    return made


def status(word: str) -> Text:
    """A status in its colour; one that isn't known means trouble."""
    from rich.text import Text

    return Text(word, style=style_of(word))


def style_of(word: str) -> str:
    return _STATUS_STYLES.get(word, "red")
