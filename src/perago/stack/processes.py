"""Processes that outlive the command that started them.

A process is identified by its number and its start time, because the system reuses numbers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_POLL_SECONDS = 0.02
_KILL_SECONDS = 10.0
_BOOT = Path("/proc/sys/kernel/random/boot_id")

# The shell ends at once, so that the process is no child of ours: it needs no reaping, and the
# command that started it may end. A shell has a background process ignore SIGINT and SIGQUIT.
_DETACHED = 'cd "$0" && { exec "$@" >&2 & echo $!; }'
_DEFAULT_SIGNALS = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE]
"""A parent may ignore some of these, and a child would inherit that: one that ignores SIGTERM could
only be killed."""


@dataclass(frozen=True, slots=True)
class Process:
    """One process: a later one with the same number is another."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return _start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process; do nothing if it has ended."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it ended within this time."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, grace_seconds: float) -> bool:
        """Send SIGTERM and, after the grace, SIGKILL; return whether SIGTERM was enough."""
        self.signal(signal.SIGTERM)
        if self.wait(grace_seconds):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. Raises TimeoutError if the kernel doesn't end it."""
        self.signal(signal.SIGKILL)
        if not self.wait(_KILL_SECONDS):
            raise TimeoutError(f"process {self.pid} still runs {_KILL_SECONDS:g} s after SIGKILL")


def process_of(pid: int) -> Process | None:
    """Return the process that has this number now; None if there is none."""
    started = _start_time(pid)
    return None if started is None else Process(pid, started)


def start_detached(
    command: Sequence[str], *, directory: Path, environment: Mapping[str, str], log: Path
) -> Process | None:
    """Start a process in ``directory`` and in its own session; append its output to ``log``.

    It isn't our child, and no Ctrl-C or hang-up of a terminal reaches it; SIGTERM does, even if
    this process ignores SIGTERM. Returns None if it ended at once.
    """
    log_descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    reader, writer = os.pipe()
    try:
        # Not subprocess: only this call resets what signals do without running code of ours in a
        # fork, which is unsafe while there are threads.
        shell = os.posix_spawn(
            "/bin/sh",
            ["/bin/sh", "-c", _DETACHED, str(directory), *command],
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, writer, 1),
                (os.POSIX_SPAWN_DUP2, log_descriptor, 2),
            ],
            setsid=True,
            setsigdef=_DEFAULT_SIGNALS,
        )
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
        os.close(log_descriptor)
    with os.fdopen(reader, "rb") as output:
        pid = output.read()
    _, status = os.waitpid(shell, 0)
    if status:
        raise ChildProcessError(f"/bin/sh couldn't start {command[0]} in {directory}")
    return process_of(int(pid))


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Hold Ctrl-C back until the block ends, so that what the block starts is always recorded."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return
    received: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: received.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if received:
            signal.raise_signal(signal.SIGINT)


def _start_time(pid: int) -> str | None:
    """Return when a process started, as text that no other process of this number has had.

    None if there is no such process, or it has ended and its parent hasn't waited for it.
    """
    if not _BOOT.exists():
        return _start_time_from_ps(pid)
    try:
        # The second field is the program's name in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = fields.rpartition(")")[2].split()
    ticks_since_boot = rest[18]
    return None if state in "ZX" else f"{_BOOT.read_text().strip()} {ticks_since_boot}"


def _start_time_from_ps(pid: int) -> str | None:
    columns = subprocess.run(
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        env={"LC_ALL": "C", "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split(maxsplit=1)
    if len(columns) < 2 or columns[0].startswith("Z"):  # noqa: PLR2004 - two columns
        return None
    return columns[1].strip()
