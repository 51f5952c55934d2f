"""How things ended: a publish (three ways) and an attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from perago.errors import OrchestratorError
from perago.model.attempt import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON_LIMIT = 500

_REPORTABLE = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.FAILED_WITH_TERMINAL_ERROR)


class PublishLevel(StrEnum):
    """How strongly a publication is fenced. ``EXACTLY_ONCE`` is named and not available yet."""

    SOFT = "soft"
    CAS = "cas"
    EXACTLY_ONCE = "exactly-once"


class PublishPath(StrEnum):
    """Which row of the publish table was taken."""

    MERGED = "merged"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    RELOCATED_BACK = "relocated_back"
    READ_ONLY = "read_only"


@dataclass(frozen=True, slots=True)
class StagedWorkspace:
    """A staging commit, named in full: nothing later depends on the worker that made it."""

    repository: str
    branch: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class Published:
    """The branch shows this attempt's state: ``ref``. A read-only task has no level."""

    ref: str
    path: PublishPath
    level: PublishLevel | None
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a worker tells the orchestrator of an attempt; ``logs`` is the end of what it said."""

    status: TaskStatus
    output: Mapping[str, object] = field(default_factory=dict)
    reason: str | None = None
    logs: tuple[str, ...] = ()

    @property
    def completed(self) -> bool:
        return self.status is TaskStatus.COMPLETED


def assert_reportable(report: TaskReport) -> None:
    """Raises OrchestratorError for a status that isn't a worker's to report."""
    if report.status not in _REPORTABLE:
        raise OrchestratorError(
            f"a worker can't report status {report.status}",
            fix=f"report one of {', '.join(_REPORTABLE)}",
        )


@dataclass(frozen=True, slots=True)
class ReportReceipt:
    """What the orchestrator made of a report, read back: only ``accepted`` counts."""

    accepted: bool
    status: TaskStatus


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How one execution ended. Only an *accepted* completion is a success of the task."""

    execution_id: str
    report: TaskReport
    accepted: bool
    published: Published | None = None
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transfer:
    """How far a bulk transfer is, or how far it came."""

    objects: int = 0
    bytes: int = 0
    total_objects: int = 0
    total_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        return self.objects == self.total_objects

    @property
    def share(self) -> float:
        return self.bytes / self.total_bytes if self.total_bytes else 0.0

    @property
    def in_words(self) -> str:
        """Nothing if there is nothing to move."""
        return f"{self.objects:,}/{self.total_objects:,} objects" if self.total_objects else ""


@dataclass(frozen=True, slots=True)
class Computation:
    """How far Spark is with the jobs that are under way; ``doing`` is what it says of them."""

    doing: str = ""
    tasks: int = 0
    total_tasks: int = 0

    @property
    def is_whole(self) -> bool:
        return self.tasks == self.total_tasks

    @property
    def share(self) -> float:
        return self.tasks / self.total_tasks if self.total_tasks else 0.0

    @property
    def in_words(self) -> str:
        counts = f"{self.tasks:,}/{self.total_tasks:,} tasks" if self.total_tasks else ""
        return " · ".join(filter(None, (counts, self.doing)))


Headway: TypeAlias = Transfer | Computation
"""How far something that lasts has come."""
