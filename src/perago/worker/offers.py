"""How much work to ask for: something for each free slot, and a little ahead while tasks are short.

Asking costs the orchestrator about as much as a task of no length itself, and much less for several
at once. But what is taken is kept from other workers: so only as much is taken ahead as is done in
a moment, and nothing once there was less to be had than was asked for.
"""

from __future__ import annotations

AHEAD_SECONDS = 0.25
"""What is taken ahead is done in about that time, if things go on as they did."""

MOST_AHEAD = 4
"""What is taken ahead at most, for each slot."""

_UNKNOWN_SECONDS = 1.0
_PART_OF_NEWEST = 0.25


class Offers:
    """What the desk was offered and hasn't used yet, and what to offer it next."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._outstanding = 0
        self._is_dry = True
        self._pace = _UNKNOWN_SECONDS

    def used(self) -> None:
        """A task was delivered."""
        self._outstanding = max(0, self._outstanding - 1)
        self._is_dry = False

    def ran_dry(self, dropped: int) -> None:
        """There was less to be had than was asked for; so many offers don't stand any more."""
        self._outstanding = max(0, self._outstanding - dropped)
        self._is_dry = True

    def took(self, seconds: float) -> None:
        """An attempt took that long. A long one counts at once, short ones by and by."""
        part = 1.0 if seconds > self._pace else _PART_OF_NEWEST
        self._pace += part * (seconds - self._pace)

    def due(self, *, free: int, waiting: int) -> tuple[int, int]:
        """How much to offer now: for slots that stand free, and ahead of those that are busy."""
        wanted = free - waiting
        for_slots = max(0, wanted - self._outstanding)
        ahead = wanted + self._ahead - self._outstanding - for_slots
        if ahead < max(1, self._ahead // 2):  # rather several at once
            ahead = 0
        self._outstanding += for_slots + ahead
        return for_slots, ahead

    @property
    def _ahead(self) -> int:
        if self._is_dry:
            return 0
        done = self._slots * AHEAD_SECONDS / max(self._pace, 1e-3)
        return min(int(done), MOST_AHEAD * self._slots)
