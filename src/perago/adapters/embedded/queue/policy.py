"""The queue's decisions, as pure functions: delays, time-outs, limits, the next step.

They follow Conductor's rules.

==================  =====================  ======================================================
time-out            counted from           what it does
==================  =====================  ======================================================
``response``        last poll, heartbeat   attempt TIMED_OUT and retried, under any policy
``poll``            when it became due     by ``timeout.policy``
``seconds``         first poll             by ``timeout.policy``
``total``           the step's first       run TIMED_OUT: no retry may outlive it
                    attempt, or a resume
==================  =====================  ======================================================

``timeout.policy``: ``TIME_OUT_WF`` ends the run TIMED_OUT, ``RETRY`` ends the attempt TIMED_OUT and
retries it, ``ALERT_ONLY`` leaves a note on the attempt. Zero seconds means no such time-out.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus, resolve_params

if TYPE_CHECKING:
    from perago.model.controls import ExecutionLimits, RetryPolicy, TimeoutPolicy
    from perago.model.run import RunPlan, RunRecord, StepPlan


# --- retries -------------------------------------------------------------------------------------


def retry_delay(policy: RetryPolicy, retry_count: int, *, spread: float) -> float:
    """Seconds between the failure of attempt number ``retry_count`` and the next one.

    ``spread`` (0 to 1) is the share of the jitter to add. The jitter may exceed the longest delay.
    """
    delay = float(policy.delay_seconds)
    if policy.logic == "LINEAR_BACKOFF":
        delay *= retry_count + 1
    elif policy.logic == "EXPONENTIAL_BACKOFF":
        delay *= 2**retry_count
    if policy.max_delay_seconds > 0:
        delay = min(delay, policy.max_delay_seconds)
    return delay + spread * policy.jitter_ms / 1000


def run_status_after(
    status: TaskStatus, *, retry_count: int, retry: RetryPolicy
) -> RunStatus | None:
    """The run's status after an attempt ended with ``status``; None if the attempt is retried."""
    if status is TaskStatus.FAILED_WITH_TERMINAL_ERROR:
        return RunStatus.FAILED
    if retry_count < retry.count:
        return None
    return RunStatus.TIMED_OUT if status is TaskStatus.TIMED_OUT else RunStatus.FAILED


# --- time-outs -----------------------------------------------------------------------------------


class Consequence(IntEnum):
    """What a time-out does. If several have passed, the highest value applies."""

    NOTE = 1
    RETRY = 2
    END_RUN = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """When things happened to an unfinished attempt. ``heard_at``: its last poll or heartbeat."""

    due_at: float
    chain_started_at: float
    started_at: float | None = None
    heard_at: float | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """What happens, and why, to an attempt that has not ended at the time ``at``."""

    at: float
    consequence: Consequence
    reason: str


_BY_POLICY = {
    "TIME_OUT_WF": Consequence.END_RUN,
    "RETRY": Consequence.RETRY,
    "ALERT_ONLY": Consequence.NOTE,
}


def overdue(timing: Timing, timeout: TimeoutPolicy, now: float) -> Deadline | None:
    """Of the deadlines that have passed, the one with the highest consequence."""
    passed = [deadline for deadline in _deadlines(timing, timeout) if deadline.at <= now]
    return max(passed, key=lambda deadline: deadline.consequence, default=None)


def next_deadline(timing: Timing, timeout: TimeoutPolicy, now: float) -> float | None:
    """When to check the attempt again: its first deadline that has not passed yet."""
    return min((d.at for d in _deadlines(timing, timeout) if d.at > now), default=None)


def _deadlines(timing: Timing, timeout: TimeoutPolicy) -> list[Deadline]:
    by_policy = _BY_POLICY[timeout.policy]
    found = []
    if timing.started_at is None and timeout.poll_seconds > 0:
        reason = f"no worker polled it within timeout.poll_seconds={timeout.poll_seconds}"
        found.append(Deadline(timing.due_at + timeout.poll_seconds, by_policy, reason))
    if timing.heard_at is not None and timeout.response_seconds > 0:
        reason = (
            f"its worker sent no heartbeat for timeout.response_seconds={timeout.response_seconds}"
        )
        at = timing.heard_at + timeout.response_seconds
        found.append(Deadline(at, Consequence.RETRY, reason))
    if timing.started_at is not None and timeout.seconds > 0:
        reason = f"it did not end within timeout.seconds={timeout.seconds}"
        found.append(Deadline(timing.started_at + timeout.seconds, by_policy, reason))
    if timeout.total_seconds > 0:
        reason = f"its attempts did not end within timeout.total_seconds={timeout.total_seconds}"
        at = timing.chain_started_at + timeout.total_seconds
        found.append(Deadline(at, Consequence.END_RUN, reason))
    return found


# --- limits --------------------------------------------------------------------------------------


def may_start(limits: ExecutionLimits, *, in_progress: int, recently_polled: int) -> bool:
    """Whether one more attempt of a task may be delivered.

    ``in_progress`` counts the task's other attempts now, over all runs; ``recently_polled`` those
    delivered within the last ``rate_limit_frequency_in_seconds``, ended or not.
    """
    within_concurrency = (
        not limits.concurrent_exec_limit or in_progress < limits.concurrent_exec_limit
    )
    within_rate = (
        not limits.rate_limit_per_frequency or recently_polled < limits.rate_limit_per_frequency
    )
    return within_concurrency and within_rate


# --- the chain of steps --------------------------------------------------------------------------


def step_of(plan: RunPlan, reference: str) -> StepPlan:
    """The plan's step with that reference name."""
    return next(step for step in plan.steps if step.reference == reference)


def step_after(plan: RunPlan, reference: str) -> StepPlan | None:
    """The step that follows; None after the last one."""
    position = plan.steps.index(step_of(plan, reference))
    return plan.steps[position + 1] if position + 1 < len(plan.steps) else None


def input_for(run: RunRecord, step: StepPlan) -> dict[str, object]:
    """A step's task input: the workspace at the run's newest ref, and the resolved params."""
    results = {
        record.attempt.reference_task_name: record.output.get("result")
        for record in run.attempts
        if record.status is TaskStatus.COMPLETED
    }
    params = resolve_params(
        step, {name: result for name, result in results.items() if isinstance(result, dict)}
    )
    if not step.uses_workspace or run.workspace is None or run.output_ref is None:
        return {"params": params}
    return {"workspace": run.workspace.moved_to(run.output_ref).model_dump(), "params": params}
