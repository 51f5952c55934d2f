"""Facts about the filesystem an attempt works on that can only be found out by trying."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TICK_LIMIT_SECONDS = 5.0
_TICK_PAUSE_SECONDS = 0.0005


def folds_case(directory: Path) -> bool:
    """Whether names that differ only in case are one file here."""
    with _probe(directory) as probe:
        return (directory / probe.name.swapcase()).exists()


def wait_for_next_tick(directory: Path, since_ns: int) -> None:
    """Return once a file changed now would get a later change time than ``since_ns``.

    Filesystems stamp files with a coarse clock. Without this, a write right after the stat that
    is compared with later could carry the very same time and stay unnoticed.
    """
    deadline = time.monotonic() + _TICK_LIMIT_SECONDS
    with _probe(directory) as probe:
        while probe.stat().st_ctime_ns <= since_ns:
            if time.monotonic() > deadline:
                raise RuntimeConfigError(
                    f"the filesystem of {directory} doesn't tell time: a file touched now seems "
                    "older than one written before",
                    fix="point PERAGO_WORKSPACE_ROOT at a local disk",
                )
            time.sleep(_TICK_PAUSE_SECONDS)
            os.utime(probe)


@contextmanager
def _probe(directory: Path) -> Iterator[Path]:
    """A file of a name nobody else uses, gone afterwards."""
    probe = directory / f".perago-probe-{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
    except OSError as error:
        raise RuntimeConfigError(
            f"can't write to {directory}: {error.strerror}",
            fix="free some room, or name a directory this user can write",
        ) from error
    try:
        yield probe
    finally:
        probe.unlink(missing_ok=True)
