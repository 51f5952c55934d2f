"""How commands print: results on standard output, everything else on standard error.

The reader of either stream may leave before a command is done. Nothing here imports rich until
something has to be laid out, so that ``perago --help`` stays quick.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text


STARTING = "starting"
"""What a command shows on a terminal until it has something better to show."""
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


@dataclass(frozen=True, slots=True)
class Output:
    """Prints a command's result on standard output: JSON for programs, a layout for people.

    ``json_lines`` is whether the lines about running attempts, on standard error, are JSON, too.
    """

    as_json: bool
    json_lines: bool = False

    def show(self, document: object, layout: Callable[[], RenderableType]) -> None:
        """Print ``document`` as one line of JSON, or what ``layout`` makes of it."""
        if self.as_json:
            text = json.dumps(document, ensure_ascii=False, default=str) + "\n"
        else:
            text = _rendered(layout())
        with until_reader_leaves():
            # rich has already left out what this output can't show
            click.echo(text, nl=False, color=True)


def _rendered(layout: RenderableType) -> str:
    out = console()
    with out.capture() as captured:
        # A line whose breaking is left to the terminal must not be cut.
        out.print(layout, crop=False)
    return captured.get()


def console(*, stderr: bool = False) -> Console:
    """A rich console for standard output or standard error."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=not is_terminal(sys.stdout))


def echo_err(line: str) -> None:
    """Print a line on standard error. If that fails, this line and all later ones are dropped.

    A closed pipe or a full disk below a log file must not stop a run.
    """
    try:
        click.echo(line, err=True)
    except OSError:
        _redirect_to_null(sys.stderr)


@contextmanager
def until_reader_leaves() -> Iterator[None]:
    """Write to standard output until its reader closes it, as ``head`` does after some lines.

    The rest is dropped, and the command keeps its own exit code: click, rich and Python's last
    flush would each turn a closed pipe into another one.
    """
    try:
        yield
    except BrokenPipeError:
        _redirect_to_null(sys.stdout)


@contextmanager
def status_line(doing: str) -> Iterator[None]:
    """Show what takes a moment, on a terminal only, and remove it at the end of the block."""
    if not is_terminal(sys.stderr):
        yield
        return
    click.echo(click.style(f"{doing} …", dim=True), nl=False, err=True)
    try:
        yield
    finally:
        clear_line()


def clear_line() -> None:
    """Remove what :func:`status_line` shows on the terminal's present line."""
    click.echo("\r\x1b[K", nl=False, err=True)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a standard stream is a terminal; Python has None for one that was closed."""
    return stream is not None and stream.isatty()


def _redirect_to_null(stream: TextIO) -> None:
    """Drop what comes, and what the buffer still holds, so that no later flush can fail."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def table(
    headings: Sequence[str], rows: Iterable[Sequence[str | Text]], *, whole: int = 1
) -> Table:
    """A plain table, readable at 80 columns.

    The first ``whole`` columns are never cut or wrapped, so that ids can be copied; the others
    wrap.
    """
    from rich.table import Table
    from rich.text import Text

    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    made = Table(box=None, pad_edge=False, header_style="dim")
    for column, heading in enumerate(headings):
        if column < whole:
            widest = max((row[column].cell_len for row in cells), default=0)
            made.add_column(heading, no_wrap=True, min_width=max(widest, len(heading)))
        else:
            made.add_column(heading, overflow="fold")
    for row in cells:
        made.add_row(*row)
    return made


def status(word: str) -> Text:
    """A status in its color; an unknown one is red."""
    from rich.text import Text

    return Text(word, style=style_of(word))


def style_of(word: str) -> str:
    return _STATUS_STYLES.get(word, "red")
