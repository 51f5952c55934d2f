"""``perago start``: serve Conductor with the tasks of some modules."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from perago.cli.options import common_with
from perago.cli.streams import is_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.cli.options import Speaker
    from perago.errors import PeragoError
    from perago.settings import Settings

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
@common_with(starts_slowly=True, on=True, least="conductor")
def command(
    *,
    modules: tuple[str, ...],
    jobs: int | None,
    listen: str | None,
    speaker: Speaker,
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
    from perago.cli.modules import resolve_targets
    from perago.cli.service_lines import Counted, JsonAttempts, PlainAttempts
    from perago.worker.endpoint import serving
    from perago.worker.lineage.wishes import lineage
    from perago.worker.service import Service, Slots
    from perago.worker.watcher import Watchers

    targets = resolve_targets(modules)
    if settings.lakefs_endpoint is None:  # needless for tasks without a workspace
        settings = settings.model_copy(update={"store": "embedded"})
    lines = PlainAttempts() if is_terminal(sys.stderr) and not speaker.as_json else JsonAttempts()
    counted = Counted()
    with (
        serving(listen or settings.listen) as (telemetry, show_state_of),
        lineage(settings) as also_watching,
    ):
        service = Service(
            settings,
            targets,
            Slots(jobs or 1, without_spark=jobs or min(_MOST_BY_DEFAULT, os.cpu_count() or 1)),
            Watchers(lines, counted, *telemetry, *also_watching),
            lambda definitions: _troubles(settings, definitions),
        )
        show_state_of(service)
        lines.serving(service.worker_id, targets, jobs)
        service.run()
    document = counted.document()
    speaker.say(document, lambda: f"stopped after {counted.attempts} attempts")


def _troubles(
    settings: Settings, definitions: Sequence[Mapping[str, object]]
) -> Iterator[PeragoError]:
    """Which tasks aren't registered as the code declares them."""
    from perago.operations.registering import differences
    from perago.wiring import open_definitions

    yield from differences(open_definitions(settings), definitions)
