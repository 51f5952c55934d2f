"""How a task is retried, timed out, limited and published: what ``@task(controls=…)`` takes.

Every number is whole. ``"3"`` and ``600.0`` are accepted, ``True`` is not. A timeout of zero means
"no limit".
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from perago.errors import TaskDefinitionError
from perago.model.declaration import Declaration


def _not_a_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a bool is no number")  # noqa: TRY004 - what pydantic takes as a refusal
    return value


# Whole numbers come from settings and time spans too: "3", or 600.0.
_Whole = Annotated[int, BeforeValidator(_not_a_bool), Field(strict=False)]
Seconds = Annotated[_Whole, Field(ge=0, description="a whole number of seconds, 0 or more")]
SomeSeconds = Annotated[_Whole, Field(ge=1, description="a whole number of seconds, 1 or more")]
OptionalCount = Annotated[
    Annotated[_Whole, Field(ge=0)] | None,
    Field(description="a whole number, 0 or more, or None for no limit"),
]

DEFAULT_RESPONSE_SECONDS = 600


class RetryPolicy(Declaration):
    """How often a failed attempt is followed by another, and after how long."""

    count: Annotated[_Whole, Field(ge=0, le=10, description="a whole number from 0 to 10")] = 3
    logic: Literal["FIXED", "EXPONENTIAL_BACKOFF", "LINEAR_BACKOFF"] = "FIXED"
    delay_seconds: Seconds = 60
    max_delay_seconds: Seconds = 0
    jitter_ms: Annotated[
        _Whole, Field(ge=0, description="a whole number of milliseconds, 0 or more")
    ] = 0


class TimeoutPolicy(Declaration):
    """How long an attempt may take; ``response_seconds`` is its lease, renewed by heartbeats.

    The lease never outlasts ``seconds``: Conductor refuses such a definition. So the default is
    600 seconds, or ``seconds`` where that is shorter.
    """

    policy: Literal["TIME_OUT_WF", "RETRY", "ALERT_ONLY"] = "TIME_OUT_WF"
    seconds: Seconds = 0
    response_seconds: Seconds = DEFAULT_RESPONSE_SECONDS
    poll_seconds: Seconds = 0
    total_seconds: Seconds = 0

    @model_validator(mode="before")
    @classmethod
    def _shorten_default_lease(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "response_seconds" in data or "seconds" not in data:
            return data
        with suppress(TypeError, ValueError):
            if 0 < float(data["seconds"]) < DEFAULT_RESPONSE_SECONDS:
                return {**data, "response_seconds": data["seconds"]}
        return data

    @model_validator(mode="after")
    def _check_order(self) -> TimeoutPolicy:
        if 0 < self.seconds < self.response_seconds:
            raise TaskDefinitionError(
                f"TimeoutPolicy: response_seconds ({self.response_seconds}) is longer than "
                f"seconds ({self.seconds}), the time an attempt may take at all",
                fix=f"write response_seconds={self.seconds} or less, or raise seconds",
            )
        if 0 < self.total_seconds < self.seconds:
            raise TaskDefinitionError(
                f"TimeoutPolicy: seconds ({self.seconds}) is longer than total_seconds "
                f"({self.total_seconds}), the time all attempts together may take",
                fix=f"write total_seconds={self.seconds} or more, or lower seconds",
            )
        return self


class ExecutionLimits(Declaration):
    """How many attempts of a task the orchestrator delivers, at once and per time window."""

    concurrent_exec_limit: OptionalCount = None
    rate_limit_frequency_in_seconds: OptionalCount = None
    rate_limit_per_frequency: OptionalCount = None

    @model_validator(mode="after")
    def _check_pair(self) -> ExecutionLimits:
        given = {
            "rate_limit_frequency_in_seconds": self.rate_limit_frequency_in_seconds,
            "rate_limit_per_frequency": self.rate_limit_per_frequency,
        }
        absent = [name for name, value in given.items() if value is None]
        if len(absent) == 1:
            raise TaskDefinitionError(
                f"ExecutionLimits: a rate limit needs both of its fields, and {absent[0]} is None",
                fix=f"give {absent[0]} a whole number too, or leave both out",
            )
        return self


class PublishBudget(Declaration):
    """How long the steps around a publication may take, in seconds; not in objects or bytes."""

    observed_merge_p99_seconds: Seconds
    safety_margin_seconds: Seconds
    lakefs_merge_timeout_seconds: SomeSeconds
    conductor_completion_timeout_seconds: SomeSeconds
    worker_shutdown_grace_seconds: SomeSeconds
    heartbeat_interval_seconds: SomeSeconds

    @model_validator(mode="after")
    def _check_merge_timeout(self) -> PublishBudget:
        needed = self.observed_merge_p99_seconds + self.safety_margin_seconds
        if self.lakefs_merge_timeout_seconds < needed:
            raise TaskDefinitionError(
                f"PublishBudget: lakefs_merge_timeout_seconds is "
                f"{self.lakefs_merge_timeout_seconds}, less than observed_merge_p99_seconds + "
                f"safety_margin_seconds = {needed}: ordinary merges would be cut off",
                fix=f"write lakefs_merge_timeout_seconds={needed} or more",
            )
        return self

    @property
    def publish_seconds(self) -> int:
        """What must be left of the lease when a publish starts."""
        return (
            self.lakefs_merge_timeout_seconds
            + self.conductor_completion_timeout_seconds
            + self.safety_margin_seconds
        )

    @property
    def response_timeout_seconds(self) -> int:
        """A lease that covers a publication, a heartbeat before it and the grace after it."""
        return (
            self.lakefs_merge_timeout_seconds
            + self.conductor_completion_timeout_seconds
            + self.worker_shutdown_grace_seconds
            + self.heartbeat_interval_seconds
        )

    @classmethod
    @lru_cache(maxsize=100)
    def default_for(cls, response_seconds: float) -> PublishBudget:
        """The budget of a task that declares none: half its lease at most, three heartbeats in it.

        A lease of 0 means that there is none; then nothing is shortened. Whole seconds can't keep
        both promises for a lease below 4 seconds; :func:`budget_warnings` says so.
        """
        if response_seconds == 0:
            return _FULL_BUDGET
        lease = int(response_seconds)
        full, half = _FULL_BUDGET, lease / 2
        share = min(1.0, half / full.publish_seconds)
        margin = int(full.safety_margin_seconds * share)
        merge = max(1, int(full.lakefs_merge_timeout_seconds * share))
        return cls(
            observed_merge_p99_seconds=min(full.observed_merge_p99_seconds, merge - margin),
            safety_margin_seconds=margin,
            lakefs_merge_timeout_seconds=merge,
            conductor_completion_timeout_seconds=max(
                1, int(full.conductor_completion_timeout_seconds * share)
            ),
            worker_shutdown_grace_seconds=max(1, min(full.worker_shutdown_grace_seconds, lease)),
            heartbeat_interval_seconds=max(1, min(full.heartbeat_interval_seconds, lease // 3)),
        )


_FULL_BUDGET = PublishBudget(
    observed_merge_p99_seconds=5,
    safety_margin_seconds=5,
    lakefs_merge_timeout_seconds=30,
    conductor_completion_timeout_seconds=15,
    worker_shutdown_grace_seconds=60,
    heartbeat_interval_seconds=30,
)


class TaskControls(Declaration):
    """How the runtime treats a task, and nothing about what the task computes.

    Each part may also be written as a mapping of its fields.
    """

    retry: RetryPolicy = RetryPolicy()
    timeout: TimeoutPolicy = TimeoutPolicy()
    limits: ExecutionLimits = ExecutionLimits()
    publish_budget: PublishBudget | None = Field(
        default=None, description="a PublishBudget(…), or None for one that fits the lease"
    )

    @model_validator(mode="before")
    @classmethod
    def _declare_parts(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        parts = {
            "retry": RetryPolicy,
            "timeout": TimeoutPolicy,
            "limits": ExecutionLimits,
            "publish_budget": PublishBudget,
        }
        declared = {
            name: kind(**data[name])
            for name, kind in parts.items()
            if isinstance(data.get(name), Mapping)
        }
        return {**data, **declared}

    def budget_within(self, lease_seconds: float) -> PublishBudget:
        """The declared budget, else the default one for a lease of that length."""
        return self.publish_budget or PublishBudget.default_for(lease_seconds)


def budget_warnings(controls: TaskControls) -> list[str]:
    """One sentence with its fix for each thing that the task's lease is too short for."""
    lease = controls.timeout.response_seconds
    budget = controls.budget_within(lease)
    needed = budget.publish_seconds + budget.heartbeat_interval_seconds
    if lease == 0 or lease >= needed:
        return []
    too_short = (
        f"the lease (TimeoutPolicy.response_seconds={lease}) is shorter than the publish budget "
        f"and one heartbeat ({budget.publish_seconds} + {budget.heartbeat_interval_seconds} "
        f"seconds): an attempt may be refused its publication; "
        f"fix: write response_seconds={needed} or more, or a smaller PublishBudget"
    )
    return [too_short]
