"""What the processes of a worker say to each other: supervisor, executors and poller.

Messages travel over private socket pairs, so they are picklable values. Those that are sent for
every attempt are tuples, which are the quickest to pickle. The step that an executor is at is one
byte of shared memory instead: it outlives the executor.
"""

from __future__ import annotations

import mmap
import os
import select
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from perago.model.attempt import AttemptStep

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from multiprocessing.connection import Connection
    from pathlib import Path

    from perago.errors import PeragoError
    from perago.model.attempt import Delivery, Execution, TaskStatus
    from perago.model.controls import TaskControls
    from perago.model.outcome import TaskReport
    from perago.model.progress import Progress
    from perago.ports.orchestrator import Orchestrator
    from perago.settings import Settings

SPOOLS = ".printed-*"


def spool_path(logs: Path, pid: int) -> Path:
    """The spool of the executor with this process id."""
    return logs / SPOOLS.replace("*", str(pid))


# --- to an executor -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """The first message: the settings, and the modules to load before any attempt comes.

    ``executors`` is how many of them share this machine; ``spools`` is whether output goes to a
    spool first (:mod:`perago.worker.attempt_log`).
    """

    settings: Settings
    modules: tuple[str, ...] = ()
    spools: bool = False
    store_patience_seconds: float = 0.0
    executors: int = 1

    def spool_of(self, pid: int) -> Path | None:
        """Where the executor with this process id sends output that has no attempt's log yet."""
        return spool_path(self.settings.logs, pid) if self.spools else None


class Assignment(NamedTuple):
    """Run this attempt. Its lease counts from ``leased_at`` on the machine's monotonic clock."""

    delivery: Delivery
    execution: Execution
    module: str
    leased_at: float
    heartbeat_seconds: float
    events_log: Path
    output_log: Path


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The orchestrator accepted the heartbeat that was sent at ``at``.

    From the orchestrator link to the supervisor, and on to the executor.
    """

    delivery_id: str
    at: float


@dataclass(frozen=True, slots=True)
class HeartbeatsStopped:
    """No heartbeat of this delivery is in flight, and none will be sent.

    From the orchestrator link to the supervisor, and on to the executor, which reports only now.
    """

    delivery_id: str


ToExecutor: TypeAlias = Assignment | LeaseRenewed | HeartbeatsStopped


# --- from an executor -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServedTask:
    """What a supervisor knows of a task; only executors load users' code.

    ``definition`` is Conductor's TaskDef.
    """

    name: str
    module: str
    controls: TaskControls
    uses_workspace: bool
    uses_spark: bool
    definition: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Ready:
    """The executor is up and has loaded these tasks from its modules."""

    tasks: tuple[ServedTask, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFailed:
    """The executor can't run attempts, and exits."""

    error: PeragoError


class StepStart(NamedTuple):
    step: AttemptStep


class StepEnd(NamedTuple):
    """A step ended, or something happened between two steps: an event of the attempt's log."""

    fields: Mapping[str, object]


class StepProgress(NamedTuple):
    step: AttemptStep
    progress: Progress


@dataclass(frozen=True, slots=True)
class ReportPending:
    """The executor is about to report and waits for :class:`HeartbeatsStopped`.

    It asks only if a heartbeat may be in flight. Otherwise ``StepStart("report")`` is enough to end
    the renewals.
    """


class Finished(NamedTuple):
    """The attempt was reported (or the report given up), and its directory removed."""

    status: TaskStatus
    reason: str | None
    accepted: bool


FromExecutor: TypeAlias = (
    Ready | StartFailed | StepStart | StepEnd | StepProgress | ReportPending | Finished
)


# --- from the supervisor to its poller ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartPolling:
    """The first command: the orchestrator to poll, and the name to poll with."""

    orchestrator: Orchestrator
    worker_id: str


@dataclass(frozen=True, slots=True)
class SetTasks:
    task_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddCredit:
    """Poll for so many more attempts: for free slots, and ahead of busy ones."""

    slots: int
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class DropPrefetch:
    """Take nothing ahead any more."""


@dataclass(frozen=True, slots=True)
class KeepLease:
    delivery: Delivery
    heartbeat_seconds: float
    leased_at: float


@dataclass(frozen=True, slots=True)
class ReleaseLease:
    """Send no more heartbeats; with ``confirm``, answer :class:`HeartbeatsStopped`."""

    delivery_id: str
    confirm: bool


@dataclass(frozen=True, slots=True)
class ReportDeath:
    delivery: Delivery
    report: TaskReport


@dataclass(frozen=True, slots=True)
class GiveBack:
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class StopPolling:
    """Take no more work."""


@dataclass(frozen=True, slots=True)
class Alive:
    """The supervisor's loop runs. Without this message no lease is kept."""


PollerCommand: TypeAlias = (
    StartPolling
    | SetTasks
    | AddCredit
    | DropPrefetch
    | KeepLease
    | ReleaseLease
    | ReportDeath
    | GiveBack
    | StopPolling
    | Alive
)


# --- how they get there ---------------------------------------------------------------------------


class ConnectionWaiter:
    """Waits on several connections, quickly if they are the same as the last time.

    :func:`multiprocessing.connection.wait` registers them anew for every call.
    """

    def __init__(self) -> None:
        self._connections: list[Connection] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, Connection] = {}

    def wait(
        self, connections: Sequence[Connection], seconds: float | None = None
    ) -> list[Connection]:
        """Those with a message or at their end, as soon as there is one or the time is up."""
        if list(connections) != self._connections:
            self._connections = list(connections)
            self._by_descriptor = {each.fileno(): each for each in connections}
            self._poll = select.poll()
            for descriptor in self._by_descriptor:
                self._poll.register(descriptor, select.POLLIN)
        ready = self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        return [self._by_descriptor[descriptor] for descriptor, _ in ready]


_STEPS: tuple[AttemptStep | None, ...] = (None, *AttemptStep)
_NUMBERS = {step: number for number, step in enumerate(_STEPS)}


class SharedStep:
    """The step of an executor's attempt, in memory shared with its supervisor.

    It is one byte, so it is never seen half written.
    """

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
        """None if the attempt has not begun."""
        return _STEPS[self._memory[0]]

    @step.setter
    def step(self, step: AttemptStep | None) -> None:
        self._memory[0] = _NUMBERS[step]

    def close(self) -> None:
        self._memory.close()
        os.close(self.descriptor)
