"""An attempt as the orchestrator delivers it, and one execution of it by one process.

Also the names made from them: of branches, directories, commit metadata and lineage runs.
"""

from __future__ import annotations

import re
import secrets
import time
import uuid
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


STAGING_PREFIX = "perago-staging-"
TASK_ID_KEY = "perago.task_id"
STEP_KEYS = ("perago.workflow_instance_id", "perago.reference_task_name", "perago.iteration")
"""Metadata that all attempts of one pipeline step share, and no other step has."""
_SEGMENT_LIMIT = 40
_TIME_DIGITS = 12
_UUID_7 = 0x7 << 76
_UUID_VARIANT = 0x2 << 62
_UUID_REST = ~(0xF << 76 | 0x3 << 62)
_WORKFLOWS = uuid.uuid5(uuid.NAMESPACE_URL, "perago:workflow")


class TaskStatus(StrEnum):
    """Conductor's task states, which the embedded queue shares."""

    SCHEDULED = "SCHEDULED"
    IN_PROGRESS = "IN_PROGRESS"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    FAILED_WITH_TERMINAL_ERROR = "FAILED_WITH_TERMINAL_ERROR"
    TIMED_OUT = "TIMED_OUT"
    CANCELED = "CANCELED"


class AttemptStep(StrEnum):
    """The steps of an attempt, in the order in which they happen. A workspace-free task has few.

    The values stand in logs, metrics and traces.
    """

    VALIDATE = "validate"
    DIRECTORY = "directory"
    FETCH = "fetch"
    PRE = "pre"
    BODY = "body"
    POST = "post"
    FENCE1 = "fence1"
    STAGE_BRANCH = "stage.branch"
    STAGE_UPLOAD = "stage.upload"
    STAGE_COMMIT = "stage.commit"
    CHECKS = "checks"
    FENCE2 = "fence2"
    PUBLISH = "publish"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at one task, with the ids that the orchestrator gave it.

    ``workflow_name`` is not part of its identity, and only known for a delivered attempt.
    """

    workflow_instance_id: str
    reference_task_name: str
    seq: int
    iteration: int
    task_id: str
    retry_count: int
    task_name: str
    workflow_name: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What a poll returns: an attempt, its raw input and the length of its lease.

    ``poll_count`` distinguishes this delivery from a later one of the same task id.
    """

    attempt: Attempt
    input: Mapping[str, object]
    worker_id: str
    response_seconds: float
    poll_count: int = 1

    @property
    def id(self) -> str:
        """The id of this delivery: one task may be delivered again, even to the same worker."""
        return f"{self.attempt.task_id}#{self.poll_count}"


@dataclass(frozen=True, slots=True)
class AttemptSnapshot:
    """What the orchestrator says about an attempt right now.

    ``poll_count`` and ``worker_id`` are those of its last delivery; ``is_latest`` says that no
    newer attempt has taken its place.
    """

    status: TaskStatus
    workflow_instance_id: str
    task_id: str
    retry_count: int
    poll_count: int = 1
    worker_id: str | None = None
    is_latest: bool = True


def is_superseded(delivery: Delivery, now: AttemptSnapshot) -> bool:
    """Whether the same task was delivered again since, or put back into its queue for that."""
    return (
        now.status is TaskStatus.SCHEDULED
        or now.poll_count != delivery.poll_count
        or now.worker_id not in (None, delivery.worker_id)
    )


@dataclass(frozen=True, slots=True)
class Execution:
    """One process's work on an attempt.

    Two executions never share an id, not even of the same attempt: the orchestrator may deliver one
    task id to two workers, and equal metadata could give their commits the same id.
    """

    attempt: Attempt
    id: str

    @classmethod
    def begin(cls, attempt: Attempt) -> Execution:
        """An execution with a new id."""
        return cls(attempt, new_execution_id())

    @property
    def staging_branch(self) -> str:
        """Private to this execution; made of all the attempt's fields and the execution id."""
        a = self.attempt
        return (
            f"{STAGING_PREFIX}{name_part(a.workflow_instance_id)}-{name_part(a.reference_task_name)}"
            f"-seq-{a.seq}-iteration-{a.iteration}-task-{name_part(a.task_id)}"
            f"-retry-{a.retry_count}-exec-{self.id}"
        )

    @property
    def trial_branch(self) -> str:
        """A private branch for trying out what the store can do, and for building a replacement."""
        return trial_branch(self.id)

    @property
    def branches(self) -> tuple[str, ...]:
        """All branches that this execution may leave behind if it dies."""
        return (self.staging_branch, self.trial_branch)

    @property
    def directory_name(self) -> str:
        """The name of its directory below the workspace root."""
        return f"{name_part(self.attempt.reference_task_name)}-{self.id}"

    def metadata(self) -> dict[str, str]:
        """The metadata of its commits: enough to recognise a commit as its own."""
        a = self.attempt
        return {
            "perago.execution_id": self.id,
            "perago.workflow_instance_id": a.workflow_instance_id,
            "perago.reference_task_name": a.reference_task_name,
            "perago.task_name": a.task_name,
            "perago.seq": str(a.seq),
            "perago.iteration": str(a.iteration),
            TASK_ID_KEY: a.task_id,
            "perago.retry_count": str(a.retry_count),
        }


def new_execution_id() -> str:
    """The time, as 12 hexadecimal digits of milliseconds as in a UUIDv7, then random digits.

    So the name of a staging branch says when it was created, even if the store doesn't.
    """
    milliseconds = time.time_ns() // 1_000_000
    return f"{milliseconds:0{_TIME_DIGITS}x}{secrets.token_hex(10)}"


def began_at(execution_id: str) -> float:
    """When an execution began, by the clock of the machine it ran on."""
    return int(execution_id[:_TIME_DIGITS], 16) / 1000


def execution_id_of(staging_branch: str) -> str | None:
    """The execution a staging branch belongs to; None for a branch that isn't one of ours."""
    match = re.fullmatch(re.escape(STAGING_PREFIX) + r".*-exec-([0-9a-f]{32})", staging_branch)
    return match.group(1) if match else None


def trial_branch(execution_id: str) -> str:
    """See :attr:`Execution.trial_branch`."""
    return f"{STAGING_PREFIX}trial-exec-{execution_id}"


def task_id_of(staging_branch: str) -> str | None:
    """The task a staging branch was created for; None if its id isn't in the name unchanged."""
    match = re.fullmatch(
        re.escape(STAGING_PREFIX) + r".*-task-([A-Za-z0-9_-]+)-retry-\d+-exec-[0-9a-f]{32}",
        staging_branch,
    )
    return match.group(1) if match else None


def name_part(value: str) -> str:
    """A foreign name, made safe and short for use in a branch or file name."""
    cleaned = re.sub(r"[^A-Za-z0-9_]+", "-", value).strip("-")
    return cleaned[:_SEGMENT_LIMIT] or "unnamed"


@dataclass(frozen=True, slots=True)
class LineageRun:
    """OpenLineage's name for an execution or a workflow: a run, of a job."""

    id: str
    job: str


def lineage_of(execution: Execution) -> LineageRun:
    """The execution as an OpenLineage run. Its job is the workflow's step."""
    attempt = execution.attempt
    workflow = attempt.workflow_name
    job = f"{workflow}.{attempt.reference_task_name}" if workflow else attempt.task_name
    return LineageRun(run_id(execution.id), job)


def workflow_lineage_of(execution: Execution) -> LineageRun | None:
    """The execution's workflow as an OpenLineage run; None if the workflow's name isn't known."""
    attempt = execution.attempt
    if not attempt.workflow_name:
        return None
    return LineageRun(workflow_run_id(attempt.workflow_instance_id), attempt.workflow_name)


def run_id(execution_id: str) -> str:
    """An execution's id as a UUIDv7, which starts with the same time."""
    number = int(execution_id, 16) & _UUID_REST
    return str(uuid.UUID(int=number | _UUID_7 | _UUID_VARIANT))


def workflow_run_id(workflow_instance_id: str) -> str:
    """The id itself if it is a UUID, as Conductor's are; otherwise a UUID made of it."""
    try:
        return str(uuid.UUID(workflow_instance_id))
    except ValueError:
        return str(uuid.uuid5(_WORKFLOWS, workflow_instance_id))
