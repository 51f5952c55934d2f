"""What attempts are called in OpenLineage: the same by whoever tells of them.

The worker tells of an attempt, and Spark's own listener of the jobs in it; both have to give it the
same run and the same job.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.model.attempt import Execution

_UUID_7 = 0x7 << 76
_VARIANT = 0x2 << 62
_BELOW_BOTH = ~(0xF << 76 | 0x3 << 62)

_WORKFLOWS = uuid.uuid5(uuid.NAMESPACE_URL, "perago:workflow")


@dataclass(frozen=True, slots=True)
class LineageRun:
    """One run of a job of that name."""

    id: str
    job: str


def lineage_of(execution: Execution) -> LineageRun:
    """The execution's own run. Its job is a step of a workflow, whichever attempt it is."""
    attempt = execution.attempt
    workflow = attempt.workflow_name
    job = f"{workflow}.{attempt.reference_task_name}" if workflow else attempt.task_name
    return LineageRun(run_id(execution.id), job)


def workflow_lineage_of(execution: Execution) -> LineageRun | None:
    """The run of the workflow that it is in; None if nobody said what that is called."""
    attempt = execution.attempt
    if not attempt.workflow_name:
        return None
    return LineageRun(workflow_run_id(attempt.workflow_instance_id), attempt.workflow_name)


def run_id(execution_id: str) -> str:
    """An execution's id as a UUIDv7, which begins with the same time and is as random."""
    number = int(execution_id, 16) & _BELOW_BOTH
    return str(uuid.UUID(int=number | _UUID_7 | _VARIANT))


def workflow_run_id(workflow_instance_id: str) -> str:
    """Itself if it is a UUID, as Conductor's are; otherwise one that is made of it."""
    try:
        return str(uuid.UUID(workflow_instance_id))
    except ValueError:
        return str(uuid.uuid5(_WORKFLOWS, workflow_instance_id))
