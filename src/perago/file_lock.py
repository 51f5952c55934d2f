"""The file lock between processes (``flock``). The kernel releases it when its holder dies.

A lock belongs to an open file: closing the file releases it. Two opens of one file compete with
each other even within one process.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_POLL_SECONDS = 0.02
_PROBE_SECONDS = 1.0
"""``is_locked`` holds a lock for a moment, so one refusal does not prove that a file is owned."""


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[int]:
    """Hold an exclusive lock on the file at ``path``, waiting for it as long as it takes.

    The file and its folders are created if missing. Yields the file's descriptor. ``on_wait`` is
    called once if another process holds the lock.
    """
    descriptor = _open(path)
    try:
        if not try_lock(descriptor):
            if on_wait is not None:
                on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def owned(path: Path, on_taken: Callable[[str], Exception]) -> Iterator[None]:
    """Make this process the owner of ``path`` and write its process id into that file.

    Raises ``on_taken(process id of the owner)`` if another process owns it.
    """
    descriptor = _open(path)
    try:
        if not try_lock(descriptor, timeout=_PROBE_SECONDS):
            raise on_taken(os.pread(descriptor, 20, 0).decode() or "unknown")
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether a process holds the file's exclusive lock now.

    False if there is no such file. True if this user may not read it: then it is another user's.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        return not try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int, *, shared: bool = False, timeout: float = 0.0) -> bool:
    """Lock an open file; return whether that succeeded within ``timeout`` seconds.

    A shared lock goes with other shared ones; an exclusive lock goes with no other.
    """
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
