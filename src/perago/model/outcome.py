"""How an attempt ended: what it staged and published, what it reported, what was accepted."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from perago.errors import OrchestratorError
from perago.model.attempt import TaskStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON_LIMIT = 500
"""Characters of a report's reason."""

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
    """A staging commit with all that is needed to publish it."""

    repository: str
    branch: str
    commit: str
    tree: str


@dataclass(frozen=True, slots=True)
class Published:
    """The branch is at ``ref``, this attempt's result. A read-only task has no level."""

    ref: str
    path: PublishPath
    level: PublishLevel | None
    replaced: str | None = None


@dataclass(frozen=True, slots=True)
class TaskReport:
    """What a worker reports of an attempt; ``logs`` are the last lines that it printed."""

    status: TaskStatus
    output: Mapping[str, object] = field(default_factory=dict)
    reason: str | None = None
    logs: tuple[str, ...] = ()

    @property
    def completed(self) -> bool:
        return self.status is TaskStatus.COMPLETED


def assert_reportable(report: TaskReport) -> None:
    """Raises OrchestratorError for a status that a worker can't report."""
    if report.status not in _REPORTABLE:
        raise OrchestratorError(
            f"a worker can't report status {report.status}",
            fix=f"report one of {', '.join(_REPORTABLE)}",
        )


@dataclass(frozen=True, slots=True)
class ReportReceipt:
    """What became of a report, read back from the orchestrator: only ``accepted`` counts."""

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
