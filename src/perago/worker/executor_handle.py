"""An executor seen from outside: a child process, its socket, and how to end it."""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Self

from perago.model.attempt import AttemptStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.worker.messages import Assignment, ExecutorConfig, FromExecutor, ToExecutor


# --- Waiting on connections that are mostly the same as the last time ---


class ConnectionWaiter:
    """As :func:`multiprocessing.connection.wait`, which prepares anew for every call."""

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, Connection] = {}

    def listen(self, connections: Sequence[Connection], seconds: float) -> list[Connection]:
        """Those that have something to say, or are over, once there is one or the time is up."""
        if list(connections) != self._connections:
            self._connections = list(connections)
            self._by_descriptor = {each.fileno(): each for each in connections}
            self._poll = select.poll()
            for descriptor in self._by_descriptor:
                self._poll.register(descriptor, select.POLLIN)
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        return [self._by_descriptor[descriptor] for descriptor, _ in ready]


# --- The step an executor is at, in memory that its supervisor sees as well ---
_STEPS: tuple[AttemptStep | None, ...] = (None, *AttemptStep)
"""None is the step of an attempt that hasn't begun."""
_NUMBERS = {step: number for number, step in enumerate(_STEPS)}


class SharedStep:
    """One byte, which is never seen half written."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, mmap.PAGESIZE)

    @classmethod
    def new(cls) -> Self:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
        os.ftruncate(descriptor, mmap.PAGESIZE)
        return cls(descriptor)

    @property
    def step(self) -> AttemptStep | None:
        return _STEPS[self._memory[0]]

    @step.setter
    def step(self, step: AttemptStep | None) -> None:
        self._memory[0] = _NUMBERS[step]

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)


_TERMINATION_GRACE_SECONDS = 1.0
_KERNEL_COUNTERS = Path("/proc/vmstat")


class ExecutorProcess:
    """Started fresh, in a session of its own so that a task's children end with it."""

    def __init__(self, employment: ExecutorConfig) -> None:
        self._oom_kills = oom_kills()
        self._whereabouts = SharedStep.new()
        ours, theirs = socket.socketpair()
        passed = [theirs.fileno(), self._whereabouts.descriptor]
        with theirs:
            self._process = subprocess.Popen(
                # -P: a user's queue.py in the current directory is not the standard library's.
                [sys.executable, "-P", "-m", "perago.worker.executor", *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())
        self._ears = ConnectionWaiter()
        self.connection.send(employment)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def step(self) -> AttemptStep | None:
        """The one it is at, or was at when it ended; None before the first one of an attempt."""
        return self._whereabouts.step

    def assign(self, assignment: Assignment) -> None:
        self._whereabouts.step = None  # it is idle, so nobody else writes there
        self.send(assignment)

    def send(self, message: ToExecutor) -> None:
        """Never raises for a dead executor: its death shows, with its reason, by :meth:`death`."""
        with suppress(OSError):
            self.connection.send(message)

    def messages(self) -> list[FromExecutor]:
        """What it has said since, without waiting."""
        received: list[FromExecutor] = []
        try:
            while self._ears.listen([self.connection], 0):
                received += self.connection.recv()
        except (EOFError, OSError):
            pass
        return received

    def death(self) -> str | None:
        """Why it ended, in words; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"exited with code {code}"
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL and oom_kills() > self._oom_kills:
            return f"was ended by {name}: the system was out of memory"
        return f"was ended by {name}"

    def ask_to_end(self) -> None:
        """Let :meth:`end` find it gone already."""
        self._signal_group(signal.SIGTERM)

    def end(self) -> list[FromExecutor]:
        """Stop it and every process it started; the last it said, once it is gone."""
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERMINATION_GRACE_SECONDS)
        self._signal_group(signal.SIGKILL)  # also for children that outlived their parent
        self._process.wait()
        last_words = self.messages()
        self.connection.close()
        return last_words

    def forget(self) -> None:
        """Let go of what is left of one that was ended."""
        self._whereabouts.close()

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def oom_kills() -> int:
    """How often this system has killed a process for lack of memory; 0 where it doesn't tell."""
    try:
        counters = dict(line.split() for line in _KERNEL_COUNTERS.read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))
