"""Ctrl-C and SIGTERM: as a question that a loop asks, never in the middle of a step.

A shell without job control (a script, many CI runners) starts background programs with SIGINT
ignored, because the terminal's Ctrl-C is not for them. ``perago`` keeps to that: then only SIGTERM
stops it. The programs that it starts do not inherit it. They get the default signals.
"""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class StopSignal:
    """Counts the signals that ask this process to stop."""

    def __init__(self) -> None:
        self._count = 0
        self._since = 0.0

    @property
    def came(self) -> bool:
        return self._count > 0

    def is_due(self, grace_seconds: float) -> bool:
        """Whether to stop now: after the first signal and the grace, or after a second signal."""
        if not self._count:
            return False
        return self._count > 1 or time.monotonic() - self._since >= grace_seconds

    @contextmanager
    def watched(self) -> Iterator[StopSignal]:
        """Count signals meanwhile. After one came, Ctrl-C is ignored when this ends.

        The process is stopping then. One more Ctrl-C would only cost the summary or the exit code:
        Python removes its own handlers before it has ended.
        """
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGTERM, self._note)
        if before[signal.SIGINT] is signal.SIG_IGN:
            ignore_ctrl_c()
        else:
            signal.signal(signal.SIGINT, self._note)
        try:
            yield self
        finally:
            if self.came:
                before[signal.SIGINT] = signal.SIG_IGN
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._since = self._since or time.monotonic()
        self._count += 1


def ignore_ctrl_c() -> None:
    """Ignore SIGINT in this process, but not in the programs that it starts.

    A program inherits that a signal is ignored, but never a handler.
    """
    signal.signal(signal.SIGINT, _do_nothing)


def _do_nothing(_number: int, _frame: FrameType | None) -> None: ...
