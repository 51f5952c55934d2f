"""Processes as the kernel knows them, and waiting for a condition to come true."""

import time
from pathlib import Path

import pytest

PROC = Path("/proc")
PATIENCE_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.01, 0.1


def until(condition, what, *, seconds=PATIENCE_SECONDS):
    """The first true value of ``condition()``; fails with ``what`` if it never comes.

    ``what`` may be a function, to be asked when it hasn't. What takes long is asked for less
    often, for asking takes the time of those who are waited for.
    """
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:.0f} s for {what() if callable(what) else what}")
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_PAUSE_SECONDS)
    return value


def state_of(pid):
    """The kernel's letter for a process (T is stopped); None if it is gone or only unreaped."""
    try:
        letter = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if letter in "ZX" else letter


def is_stopped(pid):
    return state_of(pid) == "T"


def processes_with(variable, value):
    """Every living process that was started with this in its environment."""
    needle = f"{variable}={value}\0".encode()
    return [
        pid
        for path in PROC.glob("[0-9]*/environ")
        if needle in bytes_of(path) and state_of(pid := int(path.parent.name))
    ]


def children_of(pid):
    return [int(child) for child in bytes_of(PROC / f"{pid}/task/{pid}/children").split()]


def command_of(pid):
    return bytes_of(PROC / str(pid) / "cmdline").replace(b"\0", b" ").decode()


def bytes_of(path):
    try:
        return path.read_bytes()
    except (OSError, ProcessLookupError):
        return b""
