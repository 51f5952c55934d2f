"""The two ways to hold the store: together with other writers, or alone, to sweep."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.foundation.disk import write_failure
from perago.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLL_SECONDS = 0.02


@contextmanager
def held(path: str, *, exclusive: bool, wait_seconds: float, purpose: str) -> Iterator[None]:
    """Hold the file lock at ``path``, shared by writers and exclusive to the one who sweeps.

    The kernel gives it up when its holder dies, so a killed process never blocks the store.
    Raises :class:`StoreUnavailableError` if it wasn't to be had within ``wait_seconds``.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise write_failure(path, error) from error
    try:
        _wait_for(descriptor, path, exclusive=exclusive, wait_seconds=wait_seconds, purpose=purpose)
        yield
    finally:
        os.close(descriptor)


def _wait_for(
    descriptor: int, path: str, *, exclusive: bool, wait_seconds: float, purpose: str
) -> None:
    mode = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
                continue
            holder = "uploads are going on" if exclusive else "garbage collection is going on"
            raise StoreUnavailableError(
                f"{purpose} waited {wait_seconds:g} s for {path!r}: {holder}",
                fix="try again when that has ended",
            ) from None
        return
