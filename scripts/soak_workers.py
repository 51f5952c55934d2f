"""Workers that are killed and start again: `perago start` processes, and the traps set for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

Role = Literal["executor", "poller", "supervisor"]

PUBLISHING = (
    "publish.head_read",
    "publish.decided",
    "publish.cleared",
    "publish.sent",
    "publish.verified",
)
"""The places inside publishing where a trap can be set."""

PERAGO = str(Path(sys.executable).with_name("perago"))

_SET_OFF = b"--"
"""What a trap's file holds when it isn't set: the first process that writes a byte springs it."""


class Worker:
    """One `perago start` with a root of its own, started again whenever it is gone."""

    def __init__(self, directory: Path, modules: Path, settings: Mapping[str, str]) -> None:
        self.home = directory / "home"
        self.root = directory / "attempts"
        self._log = directory / "worker.log"
        self._traps = directory / "traps"
        self._traps.mkdir(parents=True)
        for place in PUBLISHING:
            self._trap(place).write_bytes(_SET_OFF)
        faults = ",".join(f"{place}=stop-once:{self._trap(place)}" for place in PUBLISHING)
        self.environment = {
            **settings,
            "PERAGO_HOME": str(self.home),
            "PERAGO_WORKSPACE_ROOT": str(self.root),
            "PERAGO_LOG_FORMAT": "json",
        }
        self._environment = {**self.environment, "PERAGO_FAILPOINTS": faults}
        self._modules = modules
        self.starts = 0
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [PERAGO, "start", "soak_tasks", "-j", "2"],
                cwd=self._modules,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self, seconds: float) -> bool:
        """Ask it to end; whether it did, in that time and without a complaint."""
        self._process.terminate()
        try:
            return self._process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            self.kill_all()
            return False

    def kill_all(self) -> None:
        for pid in [self._process.pid, *_below(self._process.pid)]:
            _kill(pid)
        self._process.wait()

    def kill(self, role: Role) -> bool:
        """SIGKILL to one of its processes; whether there was one."""
        found = self._pids(role)
        if not found:
            return False
        _kill(found[0])
        if role == "supervisor":
            self._process.wait()
        return True

    def set_trap(self, place: str) -> None:
        """Have the next executor that comes to this place of publishing stand still there."""
        self._trap(place).unlink(missing_ok=True)

    def trapped(self) -> int | None:
        """The executor that stands still in a trap."""
        return next((pid for pid in self._pids("executor") if _state_of(pid) == "T"), None)

    def kill_trapped(self, executor: int, role: Role) -> None:
        """Kill it where it stands, or the one it depends on; then it goes on as far as it can."""
        if role == "executor":
            _kill(executor)
        else:
            self.kill(role)
            _let_go_on(executor)

    def put_traps_away(self) -> None:
        """Remove all traps; a worker that stands in one goes on."""
        for place in PUBLISHING:
            self._trap(place).write_bytes(_SET_OFF)
        if executor := self.trapped():
            _let_go_on(executor)

    def _pids(self, role: Role) -> list[int]:
        if role == "supervisor":
            return [self._process.pid] if self.is_running else []
        name = f"perago.worker.{role}".encode()
        return [pid for pid in _below(self._process.pid) if name in _command_of(pid)]

    def _trap(self, place: str) -> Path:
        return self._traps / place


def register(modules: Path, environment: Mapping[str, str]) -> None:
    """Have Conductor know the tasks and the workflow. Raises CalledProcessError if it won't."""
    subprocess.run(
        [PERAGO, "register", "soak_tasks", "--json"],
        cwd=modules,
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        check=True,
    )


def wait_until_gone(root: Path, seconds: float) -> bool:
    """Whether all attempt directories below a root are gone within that time."""
    deadline = time.monotonic() + seconds
    while list(root.glob("*/*/")):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _let_go_on(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _below(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                found += map(int, children.read_text().split())
    return found[1:]


def _command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _state_of(pid: int) -> str:
    """The kernel's letter for what a process does: T is stopped."""
    try:
        # The second field is the program's name in parentheses and may hold anything.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
