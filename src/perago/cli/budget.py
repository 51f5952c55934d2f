"""``perago budget``: propose publish budgets from how long publications took."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common_options
from perago.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType

    from perago.cli.output import Output
    from perago.model.controls import TaskControls
    from perago.operations.publish_budget import Advice
    from perago.settings import Settings


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option(
    "--run", "run_id", metavar="RUN", help="Only this run's log; the start of its id is enough."
)
@common_options(on=True)
def command(
    *, targets: tuple[str, ...], run_id: str | None, output: Output, settings: Settings
) -> None:
    """Propose a PublishBudget for each task from how long its publications took.

    The durations are those of the request that moved the branch, a merge or a reset, in the runs'
    logs: with --on lakefs of publications to lakeFS, otherwise of those to the embedded store. With
    modules named, the command looks at their tasks only, and compares what they declare: the lease
    (TimeoutPolicy.response_seconds) and their own PublishBudget.

    \b
    observed_merge_p99   the 99th percentile, by nearest rank, rounded up
    safety_margin        as long as that, at least 5 s; twice as wide below 100 publications,
                         four times below 10
    lakefs_merge_timeout twice the two together; the slowest one and the margin, if that is more
    conductor_completion_timeout
                         the present one, or three times the p99 of reports if that is more
    worker_shutdown_grace
                         the present one, or long enough for a whole publication
    heartbeat_interval   the present one, or a third of the lease if that is less

    \b
    JSON: {"logs", "store", "tasks": [{"task", "publications", "unanswered", "p50", "p99",
      "slowest", "lease_seconds", "declared": {six fields} | null, "proposed": {six fields} | null,
      "python": text | null, "warnings": [text]}]}
    """
    from perago.operations.publish_budget import advise, observe

    declared = _declared(targets)
    observed = observe(_events(settings.logs, run_id), settings.store)
    names = declared if targets else sorted(observed)
    advice = [advise(name, observed.get(name), declared.get(name)) for name in names]
    document = {
        "logs": str(settings.logs),
        "store": settings.store,
        "tasks": [_document(one) for one in advice],
    }
    output.show(document, lambda: _layout(settings, advice))


def _declared(targets: tuple[str, ...]) -> dict[str, TaskControls]:
    """The controls of every task that publishes, by name."""
    from perago.operations.declared import load_declared

    return {
        task.name: task.controls
        for target in targets
        for task in load_declared(target).tasks
        if task.workspace is not None and not task.workspace.read_only
    }


def _events(logs: Path, run_id: str | None) -> Iterator[dict[str, Any]]:
    from perago.cli.run_logs import read_events

    directories = sorted(logs.iterdir()) if logs.is_dir() else []
    if run_id is not None:
        directories = [_only_match(directories, run_id)]
    for directory in directories:
        yield from read_events(directory)


def _only_match(directories: list[Path], start: str) -> Path:
    from perago.errors import RunNotFoundError

    found = [directory for directory in directories if directory.name.startswith(start)]
    if len(found) == 1:
        return found[0]
    if found:
        named = ", ".join(directory.name for directory in found)
        raise RunNotFoundError(
            f"{len(found)} runs have logs here and ids that start with {start!r}: {named}",
            fix="give more of the id",
        )
    raise RunNotFoundError(f"no run {start!r} has logs here", fix="`perago runs` lists them")


def _document(advice: Advice) -> dict[str, object]:
    return asdict(advice) | {
        "declared": advice.declared.model_dump() if advice.declared else None,
        "proposed": advice.proposed.model_dump() if advice.proposed else None,
        "python": _python(advice),
    }


def _python(advice: Advice) -> str | None:
    """The proposal as the lines to paste into a declaration."""
    if advice.proposed is None:
        return None
    fields = advice.proposed.model_dump()
    return "\n".join(
        ["PublishBudget(", *(f"    {name}={value}," for name, value in fields.items()), ")"]
    )


def _layout(settings: Settings, advice: list[Advice]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if not any(one.publications for one in advice):
        tasks = "these tasks" if advice else "any task"
        store = "lakeFS" if settings.store == "lakefs" else "the embedded store"
        nothing = f"no publication of {tasks} to {store} is in {settings.logs}"
        return Group(Text(nothing), *(_remarks(one) for one in advice if one.warnings))
    return Group(_durations(advice), Text(), _budgets(advice), *(_remarks(one) for one in advice))


def _durations(advice: list[Advice]) -> RenderableType:
    from perago.cli.output import table

    headings = ("task", "publications", "p50", "p99", "slowest", "lease")
    rows = [
        (
            one.task,
            f"{one.publications:,}",
            *(_precise(seconds) for seconds in (one.p50, one.p99, one.slowest)),
            _lease(one.lease_seconds),
        )
        for one in advice
    ]
    return table(headings, rows, whole=2)


def _precise(seconds: float | None) -> str:
    """To the millisecond: a merge on a near server takes only some."""
    return "" if seconds is None else f"{seconds:.3f} s"


def _lease(seconds: int | None) -> str:
    if seconds is None:
        return "unknown"
    return duration(seconds) if seconds else "none"


def _budgets(advice: list[Advice]) -> RenderableType:
    from perago.cli.output import table

    headings = ("budget", "", "p99", "margin", "merge", "completion", "grace", "heartbeat")
    rows = [
        (one.task, whose, *(f"{seconds} s" for seconds in budget.model_dump().values()))
        for one in advice
        for whose, budget in (("declared", one.declared), ("proposed", one.proposed))
        if budget is not None
    ]
    return table(headings, rows, whole=2)


def _remarks(advice: Advice) -> RenderableType:
    """The lines to paste, and warnings."""
    from rich.text import Text

    text = Text(f"\n{advice.task}", style="bold")
    if lines := _python(advice):
        text.append(f"\n{lines}", style="not bold")
    for warning in advice.warnings:
        text.append("\nwarning: ", style="not bold yellow").append(warning, style="not bold")
    return text
