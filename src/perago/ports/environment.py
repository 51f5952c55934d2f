"""What surrounds an attempt: time, its lease, the journal it writes to, and failpoints.

Each is a protocol, with the plainest implementation beside it.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from perago.model.attempt import AttemptStep
    from perago.model.progress import Progress


class Clock(Protocol):
    """Time, so that a test can control it."""

    def now(self) -> float:
        """Seconds since the epoch, for people and for leases shared between processes."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, the same in every process of this machine."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let that much time pass; none at all for a negative time."""
        ...


class SystemClock:
    """This machine's :class:`Clock`."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds that never go back, the same in every process of this machine."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let that much time pass; none at all for a negative time."""
        time.sleep(max(0.0, seconds))


class Lease(Protocol):
    """How long the orchestrator still waits for this attempt."""

    def remaining(self) -> float:
        """Seconds until the lease ends, counted from the last *accepted* heartbeat."""
        ...

    def stop_heartbeats(self) -> None:
        """Send no heartbeat from now on; return when none is under way.

        An orchestrator may answer a heartbeat by writing the attempt back as it was a moment ago,
        which would undo a report that came in between.
        """
        ...


class NoLease:
    """The :class:`Lease` of a task that has no response timeout."""

    def remaining(self) -> float:
        """Without end."""
        return math.inf

    def stop_heartbeats(self) -> None:
        """There are none."""


class Journal(Protocol):
    """Where an attempt says what it does: an event per step, and progress while a step lasts."""

    def event(self, step: str, **fields: object) -> None:
        """A step ended, or something happened within one. Fields are JSON values, never secrets."""
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
        """The last lines that the attempt printed, a failure's traceback included."""
        ...


class SilentJournal:
    """A :class:`Journal` that keeps nothing."""

    def event(self, step: str, **fields: object) -> None: ...

    def started(self, step: AttemptStep) -> None: ...

    def progress(self, step: AttemptStep, progress: Progress) -> None: ...

    def failure(self, error: BaseException) -> None: ...

    def printed(self) -> tuple[str, ...]:
        """No lines."""
        return ()


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
"""The named places between an attempt's steps, in order: all there are."""


class Failpoints(Protocol):
    """What happens at a failpoint: nothing, or what a test wants there (crash, delay, raise)."""

    def hit(self, name: str) -> None:
        """The attempt has reached ``name``, one of :data:`FAILPOINTS`."""
        ...


class NoFailpoints:
    """The :class:`Failpoints` of production."""

    def hit(self, name: str) -> None:
        """Go on."""
