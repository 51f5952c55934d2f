"""Times, sizes, counts and ids as people read them, and times as JSON has them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

COMMIT_LENGTH = 12
"""How much of a commit id people get to see: enough to name it in a command."""
RUN_LENGTH = 8
"""The same for a run's id."""
_COMMIT_ID = re.compile(r"\b[0-9a-f]{64}\b")
_RUN_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def iso(seconds: float | None) -> str | None:
    """A point in time as JSON has it."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def moment(seconds: float | None) -> str:
    """A point in time for people, in their own time zone."""
    if seconds is None:
        return ""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def ago(point: str) -> str:
    """How long ago a point in time was; ``point`` is in the form of :func:`iso`."""
    passed = (datetime.now(UTC) - datetime.fromisoformat(point)).total_seconds()
    return "just now" if passed < 1 else f"{duration(passed)} ago"


def duration(seconds: float | None) -> str:
    """``0.42 s``, ``42 s``, ``3.0 min``, ``2.5 h``, ``12 d``."""
    if seconds is None:
        return ""
    unit, length = next((u for u in _UNITS if seconds >= 2 * u[1]), ("s", 1))
    value = seconds / length
    digits = 0 if value >= 10 else 2 if unit == "s" else 1  # noqa: PLR2004 - two are enough to read
    return f"{value:.{digits}f} {unit}"


def size(count: int) -> str:
    """``0 B``, ``16.0 kB``, ``2.1 GB``."""
    if count < 1000:  # noqa: PLR2004 - SI units
        return f"{count} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.95:  # noqa: PLR2004 - what rounds to 1000.0 belongs to the next unit
            return f"{value:.1f} {unit}"
    return f"{value / 1000:.1f} TB"


def shorten_ids(text: str) -> str:
    """The same text with the start of each commit id and run id, which is enough to name it."""
    text = _COMMIT_ID.sub(lambda found: found[0][:COMMIT_LENGTH], text)
    return _RUN_ID.sub(lambda found: found[0][:RUN_LENGTH], text)


def count(number: int, noun: str) -> str:
    """``1 file``, ``2,000 files``, ``3 branches``, ``4 directories``."""
    if number == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{number:,} {noun[:-1]}ies"
    return f"{number:,} {noun}{'es' if noun.endswith('ch') else 's'}"
