"""One attempt as people see it: the same words in live tables, in lines and on every backend.

An :class:`AttemptView` is made from a record of the orchestrator, or kept up to date from worker
events by an :class:`AttemptTracker`.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from perago.cli.output import echo_err
from perago.formatting import COMMIT_LENGTH, duration, shorten_ids
from perago.model.attempt import AttemptStep, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    StepEnded,
    StepProgressed,
    StepStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.model.attempt import Attempt
    from perago.model.progress import Progress
    from perago.model.run import AttemptRecord
    from perago.worker.events import WorkerEvent

_STEP_WORDS = {
    AttemptStep.VALIDATE: "checking the input",
    AttemptStep.DIRECTORY: "making a private directory",
    AttemptStep.FETCH: "opening the workspace",  # fetching it, or starting Spark
    AttemptStep.PRE: "checking the input",
    AttemptStep.BODY: "running",
    AttemptStep.POST: "looking for changes",
    AttemptStep.CHECKS: "checking the data",
    AttemptStep.FENCE1: "checking that the attempt is still current",
    AttemptStep.STAGE_BRANCH: "staging",
    AttemptStep.STAGE_UPLOAD: "uploading changes",
    AttemptStep.STAGE_COMMIT: "committing",
    AttemptStep.FENCE2: "checking that the attempt is still current",
    AttemptStep.PUBLISH: "publishing",
    AttemptStep.REPORT: "reporting",
}
_SYMBOLS = {"": "·", "COMPLETED": "✓", "IN_PROGRESS": "▸", "SCHEDULED": "·"}
_FIX = re.compile(r" \(fix: (.*)\)$")
_COLORS = {"✓": "green", "✗": "red", "▸": "blue"}
_LONG_STEP_SECONDS = 5.0
_SECONDS_BETWEEN_PROGRESS = 10.0


@dataclass(frozen=True, slots=True)
class AttemptView:
    """What is known of an attempt at one moment.

    ``status`` is a TaskStatus or, of an attempt that ended without a report, the worker's words;
    empty for a step of a pipeline that has no attempt yet. ``wait_seconds`` is how long it waits
    before it is due.
    """

    reference: str
    retry: int = 0
    status: str = ""
    task: str = ""
    task_id: str = ""
    run: str = ""
    step: AttemptStep | None = None
    progress: Progress | None = None
    seconds: float | None = None
    wait_seconds: float | None = None
    worker: str | None = None
    deliveries: int = 1
    ref: str | None = None
    level: str | None = None
    path: str | None = None
    reason: str | None = None

    @classmethod
    def of(cls, attempt: Attempt, status: str) -> AttemptView:
        return cls(
            attempt.reference_task_name,
            attempt.retry_count,
            status,
            attempt.task_name,
            attempt.task_id,
            attempt.workflow_instance_id,
        )

    @classmethod
    def of_record(cls, record: AttemptRecord, now: float) -> AttemptView:
        """The view of an attempt that the orchestrator has on record."""
        seconds = None
        if record.started_at is not None:
            # The two clocks may differ: show no negative time.
            seconds = max((record.ended_at or now) - record.started_at, 0.0)
        return replace(
            cls.of(record.attempt, record.status),
            seconds=seconds,
            wait_seconds=max(record.due_at - now, 0.0),
            worker=record.worker_id,
            deliveries=record.poll_count,
            ref=record.output_ref,
            reason=record.reason,
        )

    @property
    def symbol(self) -> str:
        return _SYMBOLS.get(self.status.partition(" ")[0], "✗")

    @property
    def has_ended(self) -> bool:
        return self.status not in ("", TaskStatus.SCHEDULED, TaskStatus.IN_PROGRESS)

    @property
    def name(self) -> str:
        return f"{self.reference}, retry {self.retry}" if self.retry else self.reference

    @property
    def doing(self) -> str:
        """What it does now, in words."""
        if self.status == TaskStatus.SCHEDULED:
            return (
                f"trying again in {math.ceil(self.wait_seconds)} s"
                if self.wait_seconds
                else "waiting for a worker"
            )
        if self.step is not None:
            return _STEP_WORDS[self.step]
        again = f", delivered {self.deliveries} times" if self.deliveries > 1 else ""
        return f"running on {self.worker or 'a worker'}{again}"

    @property
    def result(self) -> str:
        """How it ended, on one line: the commit that it published, or why it failed."""
        if self.status == TaskStatus.COMPLETED:
            return f"→ {self.ref[:COMMIT_LENGTH]}" if self.ref else ""
        return status_words(self.status) + (f": {self.message}" if self.reason else "")

    @property
    def message(self) -> str:
        """The reason of a failure without its fix."""
        return shorten_ids(_FIX.sub("", self.reason or ""))

    @property
    def fix(self) -> str | None:
        found = _FIX.search(self.reason or "")
        return shorten_ids(found[1]) if found else None

    def lines(self, name: str | None = None) -> Iterator[str]:
        """The attempt as text: one line, and one for its fix. ``name`` replaces its own name."""
        parts = [f"{self.symbol} {name or self.name}"]
        if self.has_ended:
            parts += [duration(self.seconds), self.result]
            parts.append(f"({self.path}, {self.level})" if self.path else "")
            parts.append(f"on {self.worker}" if self.worker else "")
        elif self.worker:
            parts.append(self.doing)
        yield "  ".join(filter(None, parts)).rstrip()
        if self.fix:
            yield f"    fix: {self.fix}"


def status_words(status: str) -> str:
    """A status for people, short enough for a table."""
    return "FAILED, no retry" if status == TaskStatus.FAILED_WITH_TERMINAL_ERROR else status


class AttemptTracker:
    """Keeps the view of each attempt under way up to date from worker events.

    Subclasses override what they want to show.
    """

    def __init__(self) -> None:
        self._views: dict[str, AttemptView] = {}
        self._began: dict[str, float] = {}

    def started(self, view: AttemptView) -> None: ...

    def changed(self, view: AttemptView) -> None:
        """It is in another step, or its step has progressed."""

    def step_took(self, view: AttemptView, step: str, seconds: float) -> None: ...

    def warned(self, view: AttemptView, warning: str) -> None: ...

    def ended(self, view: AttemptView) -> None: ...

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted():
                self._began[event.attempt.task_id] = time.monotonic()
                self.started(self._update(event.attempt))
            case StepStarted(attempt, step):
                self.changed(self._update(attempt, step=step, progress=None))
            case StepProgressed(attempt, _, progress):
                self.changed(self._update(attempt, progress=progress))
            case StepEnded(attempt, fields):
                self._step_ended(attempt, fields)
            case AttemptEnded(attempt):
                began = self._began.pop(attempt.task_id, time.monotonic())
                seconds = time.monotonic() - began
                view = self._update(
                    attempt, status=event.text, reason=event.reason, seconds=seconds
                )
                del self._views[attempt.task_id]
                self.ended(view)
            case _:
                pass

    def _step_ended(self, attempt: Attempt, fields: Mapping[str, Any]) -> None:
        published = {}
        if fields["step"] == AttemptStep.PUBLISH:
            published = {name: fields.get(name) for name in ("ref", "level", "path")}
        view = self._update(attempt, **published)
        if warning := fields.get("warning"):
            self.warned(view, str(warning))
        if seconds := fields.get("seconds"):
            self.step_took(view, fields["step"], seconds)

    def _update(self, attempt: Attempt, **fields: Any) -> AttemptView:
        known = self._views.get(attempt.task_id)
        view = replace(known or AttemptView.of(attempt, TaskStatus.IN_PROGRESS), **fields)
        self._views[attempt.task_id] = view
        return view


class TextLines(AttemptTracker):
    """Lines for people on standard error: each attempt's start and end, and its long steps."""

    def __init__(self, width: int = 0) -> None:
        """``width`` is that of the longest name, so that what follows names is aligned."""
        super().__init__()
        self._width = width
        self._shown_progress_at = 0.0

    def started(self, view: AttemptView) -> None:
        self._show(view)

    def changed(self, view: AttemptView) -> None:
        now = time.monotonic()
        if view.progress is None:
            self._shown_progress_at = now
        elif view.progress.in_words and now > self._shown_progress_at + _SECONDS_BETWEEN_PROGRESS:
            self._shown_progress_at = now
            self._note(view, f"{view.doing}, {view.progress.in_words}")

    def step_took(self, view: AttemptView, step: str, seconds: float) -> None:
        if seconds >= _LONG_STEP_SECONDS and step in _STEP_WORDS:
            self._note(view, f"{_STEP_WORDS[AttemptStep(step)]} took {duration(seconds)}")

    def warned(self, view: AttemptView, warning: str) -> None:
        echo_err(f"{self.prefix()}{warning_words(self.name_of(view), warning)}")

    def ended(self, view: AttemptView) -> None:
        self._show(view)

    def prefix(self) -> str:
        """What each line begins with."""
        return ""

    def name_of(self, view: AttemptView) -> str:
        return view.name

    def _show(self, view: AttemptView) -> None:
        echo_attempt(view, self.name_of(view).ljust(self._width), self.prefix())

    def _note(self, view: AttemptView, words: str) -> None:
        echo_err(f"{self.prefix()}  {self.name_of(view)}: {words}")


def echo_attempt(view: AttemptView, name: str | None = None, prefix: str = "") -> None:
    """Print an attempt's lines on standard error, in color on a terminal."""
    first, *rest = view.lines(name)
    symbol = click.style(first[0], fg=_COLORS.get(first[0]))
    echo_err(f"{prefix}{symbol}{first[1:]}")
    for line in rest:
        echo_err(f"{prefix}{line}")


def warning_words(name: str, warning: str) -> str:
    return f"{click.style('warning', fg='yellow')}: {name}: {warning}"
