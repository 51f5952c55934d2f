"""Traces: a span for each attempt and, in it, one for each step, with the times of the log.

Attributes are listed here by name. So a field that is added to the log one day can't leak a task's
params, its data or an error's message.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

from perago.errors import ExecutorLostError
from perago.model.attempt import AttemptStep, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    ExecutorLost,
    StepEnded,
    StepStarted,
)
from perago.worker.metrics import ACCEPTED, ERROR, STATUS, TASK, number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from opentelemetry.trace import Span, Tracer

    from perago.model.attempt import Attempt
    from perago.worker.events import WorkerEvent


EXECUTION = "perago.execution.id"
WORKSPACE_STEP = AttemptStep.DIRECTORY
WORKSPACE_FIELDS = ("repository", "branch", "ref")
"""Fields of that step that describe the whole attempt: as ``perago.workspace.FIELD``."""
SPAN_FIELDS = {
    AttemptStep.FETCH: ("objects", "bytes", "objects_moved", "bytes_moved"),
    AttemptStep.PRE: ("guardrails",),
    AttemptStep.POST: ("guardrails", "files", "changed"),
    AttemptStep.STAGE_BRANCH: ("branch",),
    AttemptStep.STAGE_UPLOAD: ("uploaded", "deleted", "objects_moved", "bytes_moved"),
    AttemptStep.STAGE_COMMIT: ("commit",),
    AttemptStep.PUBLISH: ("level", "path", "ref", "replaced", "merge_seconds", "lease_seconds"),
    "publish.decided": ("move", "head", "level"),
    "publish.read_back": ("head", "found", "proven_absent"),
    AttemptStep.REPORT: ("status", "accepted"),
}
"""The log's fields that a step's span, or an event between steps, has: ``perago.STEP.FIELD``."""


@dataclass(slots=True)
class _Traced:
    """A running attempt and its current step. Times are nanoseconds since 1970."""

    span: Span
    last_ended: int
    step: AttemptStep | None = None
    step_began: int = 0
    error: str | None = None


class TracesObserver:
    """Turns events into spans. Each attempt is a trace of its own."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._running: dict[Attempt, _Traced] = {}

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted():
                self._attempt_started(event.attempt)
            case StepStarted(attempt, step):
                if traced := self._running.get(attempt):
                    traced.step, traced.step_began = step, time.time_ns()
            case StepEnded(attempt, fields):
                if traced := self._running.get(attempt):
                    self._step_ended(traced, fields)
            case ExecutorLost(attempt):
                if attempt is not None and (traced := self._running.get(attempt)):
                    traced.error = ExecutorLostError.code
            case AttemptEnded(attempt):
                if traced := self._running.pop(attempt, None):
                    self._attempt_ended(traced, event)

    def _attempt_started(self, attempt: Attempt) -> None:
        began = time.time_ns()
        span = self._tracer.start_span(
            f"attempt {attempt.task_name}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            attributes={
                TASK: attempt.task_name,
                "perago.workflow.id": attempt.workflow_instance_id,
                "perago.task.reference": attempt.reference_task_name,
                "perago.task.id": attempt.task_id,
                "perago.task.seq": attempt.seq,
                "perago.task.iteration": attempt.iteration,
                "perago.task.retry": attempt.retry_count,
            },
            start_time=began,
        )
        self._running[attempt] = _Traced(span, began)

    def _step_ended(self, traced: _Traced, fields: Mapping[str, object]) -> None:
        step, ended = str(fields.get("step")), _nanoseconds(fields.get("at"))
        traced.span.set_attribute(EXECUTION, str(fields.get("execution")))
        if step == WORKSPACE_STEP:
            traced.span.set_attributes(_named("workspace", WORKSPACE_FIELDS, fields))
        attributes = _named(step, SPAN_FIELDS.get(step, ()), fields)
        seconds = number(fields, "seconds")
        if seconds is None:
            traced.span.add_event(step, attributes, timestamp=ended)
            return
        traced.step = None
        error = str(fields["error"]) if "error" in fields else None
        traced.error = error or traced.error
        took = int(seconds * 1e9)
        # The log's times are in milliseconds, and several steps may end in one.
        began = max(ended - took, traced.last_ended)
        self._add_step(traced, step, began, began + took, attributes=attributes, error=error)

    def _attempt_ended(self, traced: _Traced, event: AttemptEnded) -> None:
        """Without the event's reason, which may quote a task's data."""
        ended = max(time.time_ns(), traced.last_ended)
        failed = not event.accepted or event.status is not TaskStatus.COMPLETED
        error = (traced.error or event.word.lower()) if failed else None
        if traced.step is not None:  # its executor died during it
            self._add_step(traced, traced.step, traced.step_began, ended, error=error)
        traced.span.set_attributes({STATUS: event.word, ACCEPTED: event.accepted})
        _mark(traced.span, error)
        traced.span.end(ended)

    def _add_step(
        self,
        traced: _Traced,
        step: str,
        began: int,
        ended: int,
        *,
        error: str | None,
        attributes: Mapping[str, str | int | float | bool] | None = None,
    ) -> None:
        traced.last_ended = ended
        span = self._tracer.start_span(
            step,
            context=set_span_in_context(traced.span, Context()),
            attributes=attributes,
            start_time=began,
        )
        _mark(span, error)
        span.end(ended)


def _mark(span: Span, error: str | None) -> None:
    if error is not None:
        span.set_attribute(ERROR, error)
        span.set_status(Status(StatusCode.ERROR, error))


def _named(
    scope: str, names: tuple[str, ...], fields: Mapping[str, object]
) -> dict[str, str | int | float | bool]:
    return {
        f"perago.{scope}.{name}": value
        for name in names
        if isinstance(value := fields.get(name), str | int | float | bool)
    }


def _nanoseconds(at: object) -> int:
    """The time of a log event; now, if it has none."""
    try:
        return int(datetime.fromisoformat(str(at)).timestamp() * 1e9)
    except ValueError:
        return time.time_ns()
