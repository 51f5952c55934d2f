"""Facts about the filesystem an attempt works on that can only be found out by trying."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from pathlib import Path

_TICK_LIMIT_SECONDS = 5.0
_TICK_PAUSE_SECONDS = 0.0005


def folds_case(directory: Path) -> bool:
    """Whether names that differ only in case are one file here."""
    probe = directory / ".perago-Case-probe"
    probe.touch()
    try:
        return (directory / probe.name.swapcase()).exists()
    finally:
        probe.unlink()


def wait_for_next_tick(directory: Path, since_ns: int) -> None:
    """Return once a file changed now would get a later change time than ``since_ns``.

    Filesystems stamp files with a coarse clock. Without this, a write right after the stat that
    is compared with later could carry the very same time and stay unnoticed.
    """
    probe = directory / ".perago-tick-probe"
    deadline = time.monotonic() + _TICK_LIMIT_SECONDS
    probe.touch()
    try:
        while probe.stat().st_ctime_ns <= since_ns:
            if time.monotonic() > deadline:
                raise RuntimeConfigError(
                    f"the filesystem of {directory} doesn't tell time: a file touched now seems "
                    "older than one written before",
                    fix="point PERAGO_WORKSPACE_ROOT at a local disk",
                )
            time.sleep(_TICK_PAUSE_SECONDS)
            os.utime(probe)
    finally:
        probe.unlink()
