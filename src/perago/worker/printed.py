"""The end of what an attempt printed, as much as is worth sending along."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

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
