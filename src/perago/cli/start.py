"""``perago start``: serve Conductor with the tasks of some modules."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from perago.cli.options import common_options
from perago.cli.output import echo_err, is_terminal
from perago.formatting import COMMIT_LENGTH, RUN_LENGTH, duration
from perago.model.attempt import AttemptStep, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    OrchestratorReachable,
    OrchestratorUnreachable,
    ProblemFound,
    StepEnded,
    StepStarted,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.cli.output import Output
    from perago.errors import PeragoError
    from perago.model.attempt import Attempt
    from perago.settings import Settings
    from perago.worker.events import WorkerEvent


# --- What a worker says of its attempts while it serves: a line for each that ends ---


@dataclass(slots=True)
class _Seen:
    """What is known of an attempt under way."""

    began: float
    level: object = None
    ref: object = None
    path: object = None


class _Attempts:
    """Gathers what the line of an attempt says, until it has ended."""

    def __init__(self) -> None:
        self._under_way: dict[str, _Seen] = {}

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case AttemptStarted():
                self._under_way[event.attempt.task_id] = _Seen(time.monotonic())
            case StepEnded(attempt, fields):
                self._step_ended(attempt, fields)
            case AttemptEnded(attempt):
                self._say(event, self._under_way.pop(attempt.task_id, _Seen(time.monotonic())))
            case _:
                pass

    def _step_ended(self, attempt: Attempt, fields: Mapping[str, object]) -> None:
        seen = self._under_way.get(attempt.task_id)
        if seen and fields["step"] == AttemptStep.PUBLISH:
            seen.level, seen.ref = fields.get("level"), fields.get("ref")
            seen.path = fields.get("path")
        if "warning" in fields:
            self._warn(attempt, str(fields["warning"]))

    def _say(self, ended: AttemptEnded, seen: _Seen) -> None:
        raise NotImplementedError

    def _warn(self, attempt: Attempt, warning: str) -> None:
        raise NotImplementedError


class JsonAttempts(_Attempts):
    """For programs: a JSON object a line."""

    def serving(self, worker_id: str, modules: Sequence[str], jobs: int | None) -> None:
        self._line("serving", worker=worker_id, modules=list(modules), jobs=jobs)

    def observe(self, event: WorkerEvent) -> None:
        super().observe(event)
        match event:
            case OrchestratorReachable():
                self._line("orchestrator.heard")
            case OrchestratorUnreachable(error):
                self._problem("orchestrator.unheard", error)
            case ProblemFound(error):
                self._problem("trouble", error)
            case StepStarted(attempt, AttemptStep.PUBLISH):  # it is better left to finish
                self._line("attempt.publishing", **_identity(attempt))
            case _:
                pass

    def _say(self, ended: AttemptEnded, seen: _Seen) -> None:
        self._line(
            "attempt.ended",
            **_identity(ended.attempt),
            status=ended.text,
            reason=ended.reason,
            level=seen.level,
            path=seen.path,
            ref=seen.ref,
            seconds=round(time.monotonic() - seen.began, 3),
        )

    def _warn(self, attempt: Attempt, warning: str) -> None:
        self._line("warning", **_identity(attempt), warning=warning)

    def _problem(self, event: str, error: PeragoError) -> None:
        self._line(event, code=error.code, message=error.message, fix=error.fix)

    def _line(self, event: str, **fields: object) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        echo_err(json.dumps({"at": at, "event": event, **fields}, ensure_ascii=False, default=str))


class PlainAttempts(_Attempts):
    """For people at a terminal."""

    def serving(self, worker_id: str, modules: Sequence[str], jobs: int | None) -> None:
        at_a_time = f" with {jobs} at a time" if jobs else ""
        echo_err(f"{_now()}serving {', '.join(modules)}{at_a_time}, as {worker_id}")

    def observe(self, event: WorkerEvent) -> None:
        super().observe(event)
        match event:
            case OrchestratorReachable():
                echo_err(f"{_now()}{click.style('Conductor answers', fg='green')}")
            case OrchestratorUnreachable(error):
                echo_err(f"{_now()}{click.style('Conductor is unreachable', fg='yellow')}: {error}")
            case ProblemFound(error):
                echo_err(f"{_now()}{click.style('trouble', fg='yellow')}: {error}")
            case AttemptStarted():
                echo_err(f"{_now()}{click.style('▸', fg='blue')} {_name(event.attempt)}")
            case _:
                pass

    def _say(self, ended: AttemptEnded, seen: _Seen) -> None:
        good, reason = _is_completed(ended), ended.reason
        mark = click.style("✓" if good else "✗", fg="green" if good else "red")
        took = duration(time.monotonic() - seen.began)
        published = f"  {seen.path} {str(seen.ref)[:COMMIT_LENGTH]} ({seen.level})"
        tail = (published if good and seen.ref else "") + (f"  {reason}" if reason else "")
        echo_err(f"{_now()}{mark} {_name(ended.attempt)}  {ended.text}  {took}{tail}")

    def _warn(self, attempt: Attempt, warning: str) -> None:
        echo_err(f"{_now()}{click.style('warning', fg='yellow')}: {_name(attempt)}: {warning}")


class Counted:
    """How many attempts ended, for the last line."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.attempts = 0
        self.completed = 0

    def observe(self, event: WorkerEvent) -> None:
        if isinstance(event, AttemptEnded):
            self.attempts += 1
            self.completed += _is_completed(event)

    def document(self) -> dict[str, object]:
        return {
            "attempts": self.attempts,
            "completed": self.completed,
            "seconds": round(time.monotonic() - self._began, 3),
        }


def _is_completed(ended: AttemptEnded) -> bool:
    return ended.accepted and ended.status is TaskStatus.COMPLETED


def _identity(attempt: Attempt) -> dict[str, object]:
    return {
        "run": attempt.workflow_instance_id,
        "task": attempt.task_name,
        "reference": attempt.reference_task_name,
        "task_id": attempt.task_id,
        "retry": attempt.retry_count,
    }


def _name(attempt: Attempt) -> str:
    retry = f", retry {attempt.retry_count}" if attempt.retry_count else ""
    return f"{attempt.task_name} ({attempt.workflow_instance_id[:RUN_LENGTH]}{retry})"


def _now() -> str:
    return click.style(f"{time.strftime('%H:%M:%S')}  ", dim=True)


_MOST_BY_DEFAULT = 4


@click.command()
@click.argument("modules", nargs=-1)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    show_default="the cores of this machine, at most 4; 1 if any of the tasks needs Spark",
    help="How many attempts to run at a time, each in a process of its own, and with a Spark of "
    "its own where the tasks need one.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Answer for health, readiness and metrics there.  [default: $PERAGO_LISTEN, or nowhere]",
)
@common_options(starts_slowly=True, on=True, minimum="conductor")
def command(
    *,
    modules: tuple[str, ...],
    jobs: int | None,
    listen: str | None,
    output: Output,
    settings: Settings,
) -> None:
    """Serve Conductor with the tasks of MODULES, until SIGTERM or Ctrl-C.

    Without MODULES, those that [tool.perago] in the pyproject.toml here lists. The first signal
    stops taking work and lets what runs finish within its grace; what doesn't, or everything at a
    second signal, is stopped and given back.

    Each attempt is a line on standard error: of JSON, unless that is a terminal. What attempts
    print is in the logs of --home, and its end in Conductor.

    \b
    JSON: {"attempts": number, "completed": number, "seconds": number}, when it has stopped
    """
    from perago.cli.declared import resolve_targets
    from perago.cli.start import Counted, JsonAttempts, PlainAttempts
    from perago.worker.events import Observers
    from perago.worker.health import serving
    from perago.worker.observers import lineage
    from perago.worker.service import Service, Slots

    targets = resolve_targets(modules)
    if settings.lakefs_endpoint is None:  # needless for tasks without a workspace
        settings = settings.model_copy(update={"store": "embedded"})
    lines = PlainAttempts() if is_terminal(sys.stderr) and not output.as_json else JsonAttempts()
    counted = Counted()
    with (
        serving(listen or settings.listen) as (telemetry, show_state_of),
        lineage(settings) as also_watching,
    ):
        service = Service(
            settings,
            targets,
            Slots(jobs or 1, without_spark=jobs or min(_MOST_BY_DEFAULT, os.cpu_count() or 1)),
            Observers(lines, counted, *telemetry, *also_watching),
            lambda definitions: _troubles(settings, definitions),
        )
        show_state_of(service)
        lines.serving(service.worker_id, targets, jobs)
        service.run()
    document = counted.document()
    output.show(document, lambda: f"stopped after {counted.attempts} attempts")


def _troubles(
    settings: Settings, definitions: Sequence[Mapping[str, object]]
) -> Iterator[PeragoError]:
    """Which tasks aren't registered as the code declares them."""
    from perago.operations.registration import differences
    from perago.wiring import open_definitions

    yield from differences(open_definitions(settings), definitions)
