"""What a worker counts and times: the instruments, and the observer that feeds them.

Attributes have few values each: a task's name, never a workflow's id. ``docs/reference/metrics.md``
lists them all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from opentelemetry.metrics import Observation

from perago.model.attempt import AttemptStep
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    ExecutorLost,
    HeartbeatAccepted,
    OrchestratorReachable,
    OrchestratorUnreachable,
    StepEnded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Meter

    from perago.model.attempt import Attempt
    from perago.worker.events import WorkerEvent


TASK = "perago.task.name"
STATUS = "perago.attempt.status"
ACCEPTED = "perago.attempt.accepted"
STEP = "perago.step.name"
ERROR = "error.type"
LEVEL = "perago.publish.level"
PATH = "perago.publish.path"
DIRECTION = "perago.transfer.direction"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_BYTES = tuple(float(4**power) for power in range(5, 18))  # 1 KiB to 16 GiB
_OBJECTS = (0, 1, 10, 100, 1_000, 10_000, 100_000)
_DIRECTIONS: Mapping[str, str] = {AttemptStep.FETCH: "fetch", AttemptStep.STAGE_UPLOAD: "upload"}
"""The steps that move objects."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument; each of its measurements has exactly these attributes."""

    name: str
    kind: Literal["counter", "histogram", "gauge"]
    unit: str
    meaning: str
    attributes: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


ATTEMPTS = Metric(
    "perago.attempts",
    "counter",
    "{attempt}",
    "Attempts that ended",
    (TASK, STATUS, ACCEPTED),
)
ATTEMPT_DURATION = Metric(
    "perago.attempt.duration",
    "histogram",
    "s",
    "How long an attempt took here, from delivery to its end",
    (TASK, STATUS),
    _SECONDS,
)
RETRIES = Metric(
    "perago.retries", "counter", "{attempt}", "Attempts that began and were not the first", (TASK,)
)
STEP_DURATION = Metric(
    "perago.step.duration",
    "histogram",
    "s",
    "How long a step took, also if it failed",
    (TASK, STEP),
    _SECONDS,
)
STEP_FAILURES = Metric(
    "perago.step.failures", "counter", "{failure}", "Steps that failed", (TASK, STEP, ERROR)
)
PUBLICATIONS = Metric(
    "perago.publications",
    "counter",
    "{publication}",
    "Publications, those of nothing included",
    (TASK, LEVEL, PATH),
)
MERGE_DURATION = Metric(
    "perago.merge.duration",
    "histogram",
    "s",
    "How long the request took that moves a branch, also if it failed",
    (TASK,),
    _SECONDS,
)
TRANSFER_SIZE = Metric(
    "perago.transfer.size",
    "histogram",
    "By",
    "Bytes that one attempt moved from or to the store",
    (TASK, DIRECTION),
    _BYTES,
)
TRANSFER_OBJECTS = Metric(
    "perago.transfer.objects",
    "histogram",
    "{object}",
    "Objects that one attempt moved from or to the store",
    (TASK, DIRECTION),
    _OBJECTS,
)
LEASES_RENEWED = Metric(
    "perago.leases.renewed", "counter", "{lease}", "Heartbeats that were accepted", (TASK,)
)
LEASES_LOST = Metric(
    "perago.leases.lost",
    "counter",
    "{lease}",
    "Attempts stopped as the orchestrator no longer counted on them",
    (TASK,),
)
EXECUTORS_LOST = Metric(
    "perago.executors.lost", "counter", "{executor}", "Executors that died by themselves"
)
EXECUTORS_BUSY = Metric(
    "perago.executors.busy", "gauge", "{executor}", "Executors that are at an attempt now"
)
WORKER_UP = Metric("perago.worker.up", "gauge", "{worker}", "1 as long as the worker says anything")
ORCHESTRATOR_UP = Metric(
    "perago.orchestrator.up",
    "gauge",
    "{orchestrator}",
    "1 while the orchestrator answers, else 0",
)
METRICS = (
    ATTEMPTS,
    ATTEMPT_DURATION,
    RETRIES,
    STEP_DURATION,
    STEP_FAILURES,
    PUBLICATIONS,
    MERGE_DURATION,
    TRANSFER_SIZE,
    TRANSFER_OBJECTS,
    LEASES_RENEWED,
    LEASES_LOST,
    EXECUTORS_LOST,
    EXECUTORS_BUSY,
    WORKER_UP,
    ORCHESTRATOR_UP,
)


class MetricsObserver:
    """Turns events into measurements."""

    def __init__(self, meter: Meter) -> None:
        self._began: dict[Attempt, float] = {}
        self._orchestrator_answers = False
        self._counters: dict[Metric, Counter] = {
            each: meter.create_counter(each.name, each.unit, each.meaning)
            for each in METRICS
            if each.kind == "counter"
        }
        self._histograms: dict[Metric, Histogram] = {
            each: meter.create_histogram(
                each.name,
                each.unit,
                each.meaning,
                explicit_bucket_boundaries_advisory=each.buckets,
            )
            for each in METRICS
            if each.kind == "histogram"
        }
        _observe(meter, EXECUTORS_BUSY, lambda: len(self._began))
        _observe(meter, WORKER_UP, lambda: 1)
        _observe(meter, ORCHESTRATOR_UP, lambda: int(self._orchestrator_answers))

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted():
                self._attempt_started(event.attempt)
            case StepEnded(attempt, fields):
                self._step_ended(attempt.task_name, fields)
            case AttemptEnded():
                self._attempt_ended(event)
            case HeartbeatAccepted(attempt):
                self._count(LEASES_RENEWED, attempt.task_name)
            case ExecutorLost():
                self._count(EXECUTORS_LOST)
            case OrchestratorReachable() | OrchestratorUnreachable():
                self._orchestrator_answers = isinstance(event, OrchestratorReachable)

    def _attempt_started(self, attempt: Attempt) -> None:
        self._began[attempt] = time.monotonic()
        if attempt.retry_count:
            self._count(RETRIES, attempt.task_name)

    def _step_ended(self, task: str, fields: Mapping[str, object]) -> None:
        step = str(fields.get("step"))
        seconds = number(fields, "seconds")
        if seconds is None:  # it happened between two steps
            return
        self._record(STEP_DURATION, seconds, task, step)
        if "error" in fields:
            self._count(STEP_FAILURES, task, step, str(fields["error"]))
        elif step == AttemptStep.PUBLISH:
            self._count(PUBLICATIONS, task, str(fields.get("level")), str(fields.get("path")))
        if (merging := number(fields, "merge_seconds")) is not None:
            self._record(MERGE_DURATION, merging, task)
        if direction := _DIRECTIONS.get(step):
            self._record(TRANSFER_SIZE, number(fields, "bytes_moved"), task, direction)
            self._record(TRANSFER_OBJECTS, number(fields, "objects_moved"), task, direction)

    def _attempt_ended(self, ended: AttemptEnded) -> None:
        task = ended.attempt.task_name
        self._count(ATTEMPTS, task, ended.word, ended.accepted)
        if ended.ending is Ending.LEASE_LOST:
            self._count(LEASES_LOST, task)
        began = self._began.pop(ended.attempt, None)
        if began is not None:
            self._record(ATTEMPT_DURATION, time.monotonic() - began, task, ended.word)

    def _count(self, metric: Metric, *values: str | bool) -> None:
        self._counters[metric].add(1, dict(zip(metric.attributes, values, strict=True)))

    def _record(self, metric: Metric, amount: float | None, *values: str | bool) -> None:
        if amount is not None:
            attributes = dict(zip(metric.attributes, values, strict=True))
            self._histograms[metric].record(amount, attributes)


def _observe(meter: Meter, metric: Metric, value: Callable[[], int]) -> None:
    def look(_options: CallbackOptions) -> list[Observation]:
        return [Observation(value())]

    meter.create_observable_gauge(metric.name, [look], metric.unit, metric.meaning)


def number(fields: Mapping[str, object], name: str) -> float | None:
    """A log field that is a number; None if it is missing or not a number."""
    value = fields.get(name)
    return value if isinstance(value, int | float) else None
