"""How long an attempt may still count on the orchestrator's patience."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perago.model.attempt import AttemptStep
    from perago.model.progress import Progress


# --- Time, so that a test can own it ---


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch, for people and for leases shared between processes."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, the same in every process of this machine."""
        ...

    def sleep(self, seconds: float) -> None: ...


# --- Named places between the steps of an attempt where a test can crash, delay or duplicate ---
FAILPOINTS = (
    "input.validated",
    "directory.created",
    "workspace.fetched",
    "pre.checked",
    "body.done",
    "post.checked",
    "fence1.passed",
    "staging.branch_created",
    "staging.uploaded",
    "staging.committed",
    "fence2.passed",
    "publish.head_read",
    "publish.decided",
    "publish.cleared",
    "publish.sent",
    "publish.verified",
    "publish.done",
    "staging.deleted",
    "report.ready",
    "report.sent",
    "directory.removed",
)


class Failpoints(Protocol):
    def hit(self, name: str) -> None:
        """Reached ``name``, one of :data:`FAILPOINTS`. Does nothing, unless told otherwise."""
        ...


class NoFailpoints:
    def hit(self, name: str) -> None:
        """Go on."""


# --- Where an attempt says what it does: one event per step, and progress while a step lasts ---


class Journal(Protocol):
    def event(self, step: str, **fields: object) -> None:
        """A step ended, with what it did. Fields are JSON values and never hold a secret."""
        ...

    def started(self, step: AttemptStep) -> None:
        """A step begins: for live displays, not for the log."""
        ...

    def progress(self, step: AttemptStep, progress: Progress) -> None:
        """A transfer or a computation moved on: for live displays, not for the log."""
        ...

    def failure(self, error: BaseException) -> None:
        """An attempt failed: keep the whole traceback where a person can find it."""
        ...

    def printed(self) -> tuple[str, ...]:
        """The end of what the attempt printed, a failure's traceback included, line by line."""
        ...


class SilentJournal:
    """Says nothing: for whoever watches an attempt by its outcome alone."""

    def event(self, step: str, **fields: object) -> None: ...

    def started(self, step: AttemptStep) -> None: ...

    def progress(self, step: AttemptStep, progress: Progress) -> None: ...

    def failure(self, error: BaseException) -> None: ...

    def printed(self) -> tuple[str, ...]:
        return ()


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


# --- This machine's time ---


class SystemClock:
    """The :class:`~perago.ports.environment.Clock` of production."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, the same in every process of this machine."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let that much time pass; none at all for a time that has passed already."""
        time.sleep(max(0.0, seconds))
