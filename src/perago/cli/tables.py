"""Tables for people: readable at 80 columns, and never a cut-off id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    return Text(word, style=style_of(word))


def style_of(word: str) -> str:
    return _STATUS_STYLES.get(word, "red")
