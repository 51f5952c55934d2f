"""Proposes publish budgets from the durations of earlier publications in the logs.

A duration is that of the request that moves the branch, a merge or a reset. Percentiles are by
nearest rank, so each is an observed duration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perago.errors import PublishUnknownError, WrongLandingError
from perago.model.attempt import AttemptStep
from perago.model.controls import PublishBudget, TaskControls, TimeoutPolicy, budget_warnings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


ENOUGH = 100
"""Below this many publications the 99th percentile is just the slowest one."""
FEW = 10
"""Below this many publications even the slowest one says little."""
LEAST_MARGIN_SECONDS = 5
_MOVED_ANYWAY = frozenset({PublishUnknownError.code, WrongLandingError.code})
"""Errors of publications whose request was, or may have been, carried out."""


@dataclass(slots=True)
class Observations:
    """One task's publications in the logs. ``merges`` and ``reports`` are durations in seconds.

    ``unanswered`` merges timed out: they count with the time-out, but took longer.
    """

    merges: list[float] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)
    unanswered: int = 0
    lease_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class Advice:
    """One task's durations, a proposed budget, and warnings about the present one."""

    task: str
    publications: int
    unanswered: int
    p50: float | None
    p99: float | None
    slowest: float | None
    lease_seconds: int | None
    declared: PublishBudget | None
    proposed: PublishBudget | None
    warnings: tuple[str, ...]


def observe(
    events: Iterable[Mapping[str, object]], store: str = "embedded"
) -> dict[str, Observations]:
    """Every task's publications to ``store``, in one pass over the events.

    An event without a store is from the embedded store.
    """
    found: dict[str, Observations] = {}
    runs_elsewhere: set[object] = set()
    for event in events:
        task, error = event.get("task"), event.get("error")
        if event.get("step") == AttemptStep.PUBLISH:
            if event.get("store", "embedded") != store:
                runs_elsewhere.add(event.get("run"))
                continue
            seconds = _seconds(event.get("merge_seconds"))
            if seconds is None or (error is not None and error not in _MOVED_ANYWAY):
                continue
            of_task = found.setdefault(str(task), Observations())
            of_task.merges.append(seconds)
            of_task.unanswered += error == PublishUnknownError.code
            lease = _seconds(event.get("lease_seconds"))
            of_task.lease_seconds = of_task.lease_seconds if lease is None else int(lease)
        elif (
            event.get("step") == AttemptStep.REPORT
            and task in found
            and event.get("run") not in runs_elsewhere
        ):
            seconds = _seconds(event.get("seconds"))
            found[str(task)].reports += [] if seconds is None else [seconds]
    return found


def percentile(durations: Sequence[float], percent: int) -> float:
    """By nearest rank. Raises ValueError if there are no durations."""
    if not durations:
        raise ValueError("no durations")
    ordered = sorted(durations)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def propose(
    observed: Observations, in_force: PublishBudget, *, lease_seconds: int = 0
) -> PublishBudget:
    """A budget that fits the observations; what they don't determine stays as ``in_force``.

    The heartbeat interval stays too, but is at most a third of the lease.
    """
    count, slowest = len(observed.merges), math.ceil(max(observed.merges))
    usual = max(1, math.ceil(percentile(observed.merges, 99)))
    margin = max(LEAST_MARGIN_SECONDS, usual) * widening(count)
    merge_timeout = max(2 * (usual + margin), slowest + margin)
    report = percentile(observed.reports, 99) if observed.reports else 0.0
    completion = max(in_force.conductor_completion_timeout_seconds, math.ceil(3 * report))
    publishing = merge_timeout + completion + margin
    heartbeat = in_force.heartbeat_interval_seconds
    return PublishBudget(
        observed_merge_p99_seconds=usual,
        safety_margin_seconds=margin,
        lakefs_merge_timeout_seconds=merge_timeout,
        conductor_completion_timeout_seconds=completion,
        worker_shutdown_grace_seconds=max(in_force.worker_shutdown_grace_seconds, publishing),
        heartbeat_interval_seconds=(
            max(1, min(heartbeat, lease_seconds // 3)) if lease_seconds else heartbeat
        ),
    )


def widening(count: int) -> int:
    """The factor for the safety margin: larger if few publications were observed."""
    if count >= ENOUGH:
        return 1
    return 2 if count >= FEW else 4


def advise(task: str, observed: Observations | None, controls: TaskControls | None) -> Advice:
    """Advice for one task. ``controls`` are its declared ones; None if only the logs are known."""
    observed = observed or Observations()
    known = controls or _controls_with(observed.lease_seconds)
    lease = known.timeout.response_seconds if known else None
    in_force = (known or TaskControls()).budget_within(lease or 0)
    proposed = propose(observed, in_force, lease_seconds=lease or 0) if observed.merges else None
    return Advice(
        task=task,
        publications=len(observed.merges),
        unanswered=observed.unanswered,
        p50=percentile(observed.merges, 50) if observed.merges else None,
        p99=percentile(observed.merges, 99) if observed.merges else None,
        slowest=max(observed.merges, default=None),
        lease_seconds=lease,
        declared=controls.publish_budget if controls else None,
        proposed=proposed,
        warnings=(
            *_about_evidence(observed),
            *(_about_declared(observed, controls) if controls else ()),
            *(_about_lease(known, proposed) if known and proposed else ()),
        ),
    )


def _about_evidence(observed: Observations) -> Iterable[str]:
    count = len(observed.merges)
    if 0 < count < ENOUGH:
        yield (
            f"only {count} observed: below {ENOUGH} the p99 is just the slowest one, so the safety "
            f"margin is {widening(count)} times as wide"
        )
    if observed.unanswered:
        yield (
            f"{observed.unanswered} of them were never answered: they count with the time-out, "
            "but took longer"
        )


def _about_declared(observed: Observations, controls: TaskControls) -> Iterable[str]:
    declared = controls.publish_budget
    if declared and observed.merges:
        p99, slowest = percentile(observed.merges, 99), max(observed.merges)
        if p99 > declared.observed_merge_p99_seconds:
            yield (
                f"the declared observed_merge_p99_seconds={declared.observed_merge_p99_seconds} is "
                f"below what was observed, {p99:.2f} s"
            )
        if slowest > declared.lakefs_merge_timeout_seconds:
            yield (
                f"the declared lakefs_merge_timeout_seconds={declared.lakefs_merge_timeout_seconds}"
                f" would have cut off the slowest publication, {slowest:.2f} s"
            )
    whose = "declared" if declared else "default"
    yield from (f"with the {whose} budget, {warning}" for warning in budget_warnings(controls))


def _about_lease(controls: TaskControls, proposed: PublishBudget) -> Iterable[str]:
    would_be = controls.model_copy(update={"publish_budget": proposed})
    yield from (f"with the proposed budget, {warning}" for warning in budget_warnings(would_be))


def _controls_with(lease_seconds: int | None) -> TaskControls | None:
    if lease_seconds is None:
        return None
    return TaskControls(timeout=TimeoutPolicy(response_seconds=lease_seconds))


def _seconds(value: object) -> float | None:
    """A duration from a log line; None if the value can't be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None
