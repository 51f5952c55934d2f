"""How long an attempt may still count on the orchestrator's patience."""

from __future__ import annotations

import math
from typing import Protocol


class Lease(Protocol):
    def remaining(self) -> float:
        """Seconds until the lease ends, counted from the last *accepted* heartbeat."""
        ...

    def rest(self) -> None:
        """Returns when no heartbeat is under way; none is sent any more, either.

        An orchestrator may answer a heartbeat by writing the attempt back as it was a moment ago,
        and so undo a report that came in between.
        """
        ...


class NoLease:
    """For tasks that have no response time-out."""

    def remaining(self) -> float:
        return math.inf

    def rest(self) -> None: ...
