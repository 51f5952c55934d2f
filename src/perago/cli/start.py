"""``perago start``: serve Conductor with the tasks of some modules."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from perago.cli.attempt_view import AttemptTracker, AttemptView, TextLines
from perago.cli.options import common_options
from perago.cli.output import echo_err
from perago.formatting import RUN_LENGTH, count
from perago.model.attempt import AttemptStep, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    OrchestratorReachable,
    OrchestratorUnreachable,
    ProblemFound,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.cli.output import Output
    from perago.errors import PeragoError
    from perago.settings import Settings
    from perago.worker.events import WorkerEvent

_MOST_BY_DEFAULT = 4


@click.command()
@click.argument("modules", nargs=-1)
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    default=None,
    show_default="the cores of this machine, at most 4; 1 if any of the tasks needs Spark",
    help="How many attempts to run at a time, each in its own process, and with its own Spark if "
    "the tasks need one.",
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve health, readiness and metrics here.  [default: $PERAGO_LISTEN, or nowhere]",
)
@common_options(starts_slowly=True, on=True, minimum="conductor", log_format=True)
def command(
    *,
    modules: tuple[str, ...],
    jobs: int | None,
    listen: str | None,
    output: Output,
    settings: Settings,
) -> None:
    """Run the tasks of MODULES for Conductor, until SIGTERM or Ctrl-C.

    Without MODULES, the worker serves those that [tool.perago] in ./pyproject.toml lists. After the
    first signal it takes no more work and lets running attempts finish within their grace. After
    that, or at a second signal, it stops them and gives them back to Conductor.

    Attempts are shown on standard error. What their tasks print is in the logs below --home, and
    the end of it in Conductor.

    \b
    JSON: {"attempts": number, "completed": number, "seconds": number}, when it has stopped
    """
    from perago.cli.declared import resolve_targets
    from perago.worker.events import Observers
    from perago.worker.health import serving
    from perago.worker.lineage import lineage_observers
    from perago.worker.service import Service, Slots

    targets = resolve_targets(modules)
    if settings.lakefs_endpoint is None:  # needless for tasks without a workspace
        settings = settings.model_copy(update={"store": "embedded"})
    lines = ServiceJson() if output.json_lines else ServiceLines()
    counted = AttemptCount()
    with (
        serving(listen or settings.listen) as (telemetry, show_state_of),
        lineage_observers(settings) as lineage,
    ):
        service = Service(
            settings,
            targets,
            Slots(jobs or 1, without_spark=jobs or min(_MOST_BY_DEFAULT, os.cpu_count() or 1)),
            Observers(lines, counted, *telemetry, *lineage),
            lambda definitions: _troubles(settings, definitions),
        )
        show_state_of(service)
        lines.serving(service.worker_id, targets, jobs)
        service.run()
    document = counted.document()
    output.show(document, lambda: f"stopped after {count(counted.attempts, 'attempt')}")


def _troubles(
    settings: Settings, definitions: Sequence[Mapping[str, object]]
) -> Iterator[PeragoError]:
    """Which tasks aren't registered as the code declares them."""
    from perago.operations.registration import differences
    from perago.wiring import open_definitions

    yield from differences(open_definitions(settings), definitions)


class ServiceJson(AttemptTracker):
    """For programs: a JSON object for each event."""

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
            case _:
                pass

    def changed(self, view: AttemptView) -> None:
        if view.step is AttemptStep.PUBLISH and view.progress is None:
            # from here on it is better left to finish
            self._line("attempt.publishing", **_identity(view))

    def warned(self, view: AttemptView, warning: str) -> None:
        self._line("warning", **_identity(view), warning=warning)

    def ended(self, view: AttemptView) -> None:
        self._line(
            "attempt.ended",
            **_identity(view),
            status=view.status,
            reason=view.reason,
            level=view.level,
            path=view.path,
            ref=view.ref,
            seconds=round(view.seconds or 0.0, 3),
        )

    def _problem(self, event: str, error: PeragoError) -> None:
        self._line(event, code=error.code, message=error.message, fix=error.fix)

    def _line(self, event: str, **fields: object) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        echo_err(json.dumps({"at": at, "event": event, **fields}, ensure_ascii=False, default=str))


class ServiceLines(TextLines):
    """For people: the lines of `perago run`, with the time and the run of each attempt."""

    def serving(self, worker_id: str, modules: Sequence[str], jobs: int | None) -> None:
        at_a_time = f", {jobs} at a time" if jobs else ""
        echo_err(f"{self.prefix()}serving {', '.join(modules)}{at_a_time}, as {worker_id}")

    def observe(self, event: WorkerEvent) -> None:
        super().observe(event)
        match event:
            case OrchestratorReachable():
                echo_err(f"{self.prefix()}{click.style('Conductor answers', fg='green')}")
            case OrchestratorUnreachable(error):
                self._problem("Conductor is unreachable or rejects our key; retrying", error)
            case ProblemFound(error):
                self._problem("warning", error)
            case _:
                pass

    def prefix(self) -> str:
        return click.style(f"{time.strftime('%H:%M:%S')}  ", dim=True)

    def name_of(self, view: AttemptView) -> str:
        retry = f", retry {view.retry}" if view.retry else ""
        return f"{view.task} ({view.run[:RUN_LENGTH]}{retry})"

    def _problem(self, words: str, error: PeragoError) -> None:
        echo_err(f"{self.prefix()}{click.style(words, fg='yellow')}: {error.message}")
        if error.fix:
            echo_err(f"{self.prefix()}    fix: {error.fix}")


class AttemptCount:
    """How many attempts ended, for the last line."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.attempts = 0
        self.completed = 0

    def observe(self, event: WorkerEvent) -> None:
        if isinstance(event, AttemptEnded):
            self.attempts += 1
            self.completed += event.accepted and event.status is TaskStatus.COMPLETED

    def document(self) -> dict[str, object]:
        return {
            "attempts": self.attempts,
            "completed": self.completed,
            "seconds": round(time.monotonic() - self._began, 3),
        }


def _identity(view: AttemptView) -> dict[str, object]:
    return {
        "run": view.run,
        "task": view.task,
        "reference": view.reference,
        "task_id": view.task_id,
        "retry": view.retry,
    }
