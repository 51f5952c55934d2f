"""What every check of ``perago doctor`` returns."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from perago.errors import PeragoError

Verdict = Literal["ok", "warn", "fail"]
NOTICEABLE_SECONDS = 60.0
"""How far a server's clock may differ from ours before its times mislead people."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``warn`` and ``fail`` come with a fix."""

    name: str
    verdict: Verdict
    detail: str
    fix: str | None = None

    @property
    def failed(self) -> bool:
        return self.verdict == "fail"

    @classmethod
    def of_error(cls, name: str, error: PeragoError, fix: str | None = None) -> Finding:
        """A failed check; ``fix`` is for an error that names none."""
        return cls(name, "fail", error.message, error.fix or fix)


def clock_difference(date: str, now: float) -> float | None:
    """By how many seconds a clock that shows ``date`` (an HTTP date) is ahead of ours.

    None if ``date`` is not an HTTP date.
    """
    try:
        theirs = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return None
    # An HTTP date has no fractions: it has lost half a second on average.
    return theirs + 0.5 - now
