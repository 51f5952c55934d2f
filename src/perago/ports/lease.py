"""How long an attempt may still count on the orchestrator's patience."""

from __future__ import annotations

import math
from typing import Protocol


class Lease(Protocol):
    def remaining(self) -> float:
        """Seconds until the lease ends, counted from the last *accepted* heartbeat."""
        ...


class NoLease:
    """For tasks that have no response time-out."""

    def remaining(self) -> float:
        return math.inf
