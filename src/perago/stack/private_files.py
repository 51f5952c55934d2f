"""Files that nobody but their owner may read, and that are never seen half written."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` as a whole, readable by its owner alone from its first byte on."""
    # One writer at a time is the callers' lock; the name is theirs alone.
    half = path.with_name(path.name + ".new")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    half.replace(path)


def last_lines(path: Path, lines: int, *, since: int = 0) -> str:
    """The last ``lines`` of what was written to a file after its first ``since`` bytes."""
    try:
        with path.open("rb") as source:
            end = source.seek(0, os.SEEK_END)
            # A window that holds any sensible line length, so that a huge log costs nothing.
            source.seek(max(since, end - lines * 4096))
            text = source.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:]) if lines else ""
