"""Processes that outlive us, told apart from later ones that were given the same number."""

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
_BOOT = Path("/proc/sys/kernel/random/boot_id")

# A shell in between, so that the server is nobody's child: it needs no reaping, and whoever started
# it may end. Its own output goes where the shell's errors go.
_DETACHED = 'exec "$@" >&2 & echo $!'


@dataclass(frozen=True, slots=True)
class Process:
    """One process for good: a number that the system gives to another one later isn't it."""

    pid: int
    started: str

    @property
    def is_alive(self) -> bool:
        return _start_of(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this very process; one that has ended is left in peace."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, seconds: float) -> bool:
        """Whether it ended within this time."""
        deadline = time.monotonic() + seconds
        while self.is_alive:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def stop(self, grace_seconds: float) -> bool:
        """Ask it to end and, after the grace, make it; whether asking was enough."""
        self.signal(signal.SIGTERM)
        if self.wait(grace_seconds):
            return True
        self.kill()
        return False

    def kill(self) -> None:
        """End it at once, as a crash would, and return when it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(grace := 10.0)
        if self.is_alive:  # only a process stuck in the kernel
            raise TimeoutError(f"process {self.pid} is still there {grace:g} s after SIGKILL")


def process_of(pid: int) -> Process | None:
    """The process that has this number now."""
    started = _start_of(pid)
    return None if started is None else Process(pid, started)


def start_detached(
    command: Sequence[str], *, directory: Path, environment: Mapping[str, str], log: Path
) -> Process | None:
    """Start a process in a session of its own, its output appended to ``log``.

    It isn't our child, and no terminal's Ctrl-C or hang-up reaches it. None if it ended at once.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        shell = subprocess.run(
            ["/bin/sh", "-c", _DETACHED, "sh", *command],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=descriptor,
            start_new_session=True,
            check=True,
        )
    finally:
        os.close(descriptor)
    return process_of(int(shell.stdout))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C back until the block has ended, so that what it starts is always known to us."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's affair
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


def _start_of(pid: int) -> str | None:
    """When a process was started, in words that no other process of this number has had.

    None if there is none, or only what is left of one that nobody has waited for.
    """
    if not _BOOT.exists():
        return _start_from_ps(pid)
    try:
        # The second field is the program's name in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = fields.rpartition(")")[2].split()
    ticks_since_boot = rest[18]
    return None if state in "ZX" else f"{_BOOT.read_text().strip()} {ticks_since_boot}"


def _start_from_ps(pid: int) -> str | None:
    said = subprocess.run(
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        env={"LC_ALL": "C", "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=False,
    ).stdout.split(maxsplit=1)
    return None if len(said) < 2 or said[0].startswith("Z") else said[1].strip()  # noqa: PLR2004 - two columns
