"""What a supervisor and its executors say to each other, over a private socket pair.

What is said for every attempt is a tuple: that is the quickest to send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from perago.errors import PeragoError
    from perago.model.attempt import AttemptStep, Delivery, Execution, TaskStatus
    from perago.model.controls import TaskControls
    from perago.model.outcome import TaskReport
    from perago.model.progress import Progress
    from perago.ports.orchestrator import Orchestrator
    from perago.settings import Settings


SPOOLS = ".printed-*"


def spool_of(logs: Path, executor: int) -> Path:
    """The spool of the executor with this process id."""
    return logs / SPOOLS.replace("*", str(executor))


@dataclass(frozen=True, slots=True)
class ExecutorConfig:
    """To an executor, first: what it works with, and the modules to load before anything comes.

    It is one of so many ``executors`` on this machine.
    """

    settings: Settings
    modules: tuple[str, ...] = ()
    spools: bool = False
    store_patience_seconds: float = 0.0
    executors: int = 1

    def spool_of(self, executor: int) -> Path | None:
        """Where this executor sends what is printed, until that has an attempt's log to go to."""
        return spool_of(self.settings.logs, executor) if self.spools else None


class Assignment(NamedTuple):
    """To an executor: run this. Its lease counts from ``leased_at`` on the machine's clock."""

    delivery: Delivery
    execution: Execution
    module: str
    leased_at: float
    heartbeat_seconds: float
    events_log: Path
    output_log: Path


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """To the supervisor and on to the executor: a heartbeat sent at ``at`` was accepted."""

    delivery_id: str
    at: float


@dataclass(frozen=True, slots=True)
class HeartbeatsStopped:
    """To the supervisor and on to the executor: no heartbeat is in flight, and none will be sent.

    An executor waits for this before it reports.
    """

    delivery_id: str


@dataclass(frozen=True, slots=True)
class ServedTask:
    """What a supervisor has to know of a task to have it run; it never loads users' code itself.

    ``definition`` is its TaskDef.
    """

    name: str
    module: str
    controls: TaskControls
    uses_workspace: bool
    uses_spark: bool
    definition: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Ready:
    """From an executor: it is up, with the tasks of the modules it was to load."""

    tasks: tuple[ServedTask, ...] = ()


@dataclass(frozen=True, slots=True)
class StartFailed:
    """From an executor: it can't serve, and ends."""

    error: PeragoError


class StepStart(NamedTuple):
    step: AttemptStep


class StepEnd(NamedTuple):
    """From an executor: a step's event, as it stands in the journal."""

    fields: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class StepProgress:
    step: AttemptStep
    progress: Progress


@dataclass(frozen=True, slots=True)
class Reporting:
    """From an executor: it is about to report, and waits to be told that no heartbeat is under way.

    It asks only where one may be. That its lease isn't to be renewed any more is said by the
    beginning of the step ``report``.
    """


class Finished(NamedTuple):
    """From an executor: the attempt was reported (or given up) and cleaned up after."""

    status: TaskStatus
    reason: str | None
    accepted: bool


FromExecutor = Ready | StartFailed | StepStart | StepEnd | StepProgress | Reporting | Finished
ToExecutor = Assignment | LeaseRenewed | HeartbeatsStopped


# --- What a supervisor tells its poller, over a private socket pair ---


@dataclass(frozen=True, slots=True)
class StartPolling:
    """The first order: whom to ask, and under which name."""

    orchestrator: Orchestrator
    worker_id: str


@dataclass(frozen=True, slots=True)
class SetTasks:
    task_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AddCredit:
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
    delivery_id: str
    tell: bool


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
    """The supervisor turns. Without it nobody's leases are kept."""


PollerCommand = (
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
