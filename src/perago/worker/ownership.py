"""A file that says which process something belongs to; the claim goes with the process."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.errors import PeragoError

_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.02


@contextmanager
def owned(path: Path, taken: Callable[[str], PeragoError]) -> Iterator[None]:
    """Hold ``path`` for this process, however that ends. Raises ``taken(owner's process id)``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not _locked_soon(descriptor):
            raise taken(os.pread(descriptor, 20, 0).decode() or "unknown")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_owned(path: Path) -> bool:
    """Whether some process holds it right now."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked_soon(descriptor: int) -> bool:
    """Whoever only asks holds the lock for a moment, so one refusal proves nothing."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            return True
