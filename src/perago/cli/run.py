"""``perago run``: start a pipeline or resume one, and watch it to its end."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.model.run import RunRecord
    from perago.ports.runs import Runs
    from perago.settings import Settings

_INTERRUPTED = 130


@click.command()
@click.argument("target", required=False)
@click.option(
    "--param",
    "params",
    multiple=True,
    metavar="TASK.FIELD=VALUE",
    help="Set a task's parameter; VALUE is JSON, or plain text. May be repeated.",
)
@click.option("--repository", help="Where the workspace lives.  [default: the pipeline's name]")
@click.option("--branch", default="main", show_default=True, help="The branch to publish to.")
@click.option(
    "--from",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Import this directory first, as the initial workspace.",
)
@click.option(
    "--from-head",
    is_flag=True,
    help="Accept the branch's present head as the start, after a run that stopped there.",
)
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[RUN]",
    help="Go on from the last accepted task of a run: the named one, or the latest unfinished.",
)
@common
def command(
    *,
    target: str | None,
    params: tuple[str, ...],
    repository: str | None,
    branch: str,
    directory: Path | None,
    from_head: bool,
    resume: str | None,
    speaker: Speaker,
    settings: Settings,
) -> int:
    """Run a pipeline on this machine: TARGET is module:pipeline, or a module with just one.

    Ctrl-C pauses the run, with nothing half done; --resume goes on. A run that was killed can be
    resumed the same way.
    """
    from perago.cli.live import watching
    from perago.wiring import open_queue
    from perago.worker.pipeline_runner import run_pipeline

    queue = open_queue(settings)
    if resume is None:
        if target is None:
            raise click.UsageError("Name a pipeline to run (module:pipeline), or use --resume.")
        run_id = _start(
            settings,
            queue,
            target,
            params=params,
            repository=repository,
            branch=branch,
            directory=directory,
            from_head=from_head,
        )
    else:
        if params or directory or from_head or repository:
            raise click.UsageError(
                "--resume goes on with the run as it was started: "
                "leave out --param, --from, --from-head and --repository."
            )
        run_id = _resumable(queue, resume, target)

    with watching(queue.get(run_id)) as watcher:
        record = run_pipeline(settings, run_id, watcher, resume=resume is not None)
    speaker.say(as_json(record), lambda: summary(record))
    return exit_code(record)


def _start(
    settings: Settings,
    queue: Runs,
    target: str,
    *,
    params: tuple[str, ...],
    repository: str | None,
    branch: str,
    directory: Path | None,
    from_head: bool,
) -> str:
    from perago.cli.live import transferring
    from perago.declare.loading import load_pipeline
    from perago.wiring import open_store
    from perago.worker.starting import StartingPoint, start_run

    pipeline = load_pipeline(target)
    plan = pipeline.plan(parse_params(params))
    point = StartingPoint(
        repository or repository_name(pipeline.name), branch, directory, from_head
    )
    with transferring("import") as progress:
        return start_run(queue, open_store(settings), plan, point, progress)


def parse_params(given: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """``task.field=value`` options as a mapping of tasks to fields."""
    import json

    params: dict[str, dict[str, Any]] = {}
    for item in given:
        name, equals, text = item.partition("=")
        step, dot, field = name.rpartition(".")
        if not equals or not dot or not step or not field:
            raise click.UsageError(f"--param {item!r}: write it as TASK.FIELD=VALUE.")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        params.setdefault(step, {})[field] = value
    return params


def repository_name(pipeline_name: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", pipeline_name.lower()).strip("-")
    return name if len(name) >= 3 else f"{name or 'run'}-workspace"  # noqa: PLR2004 - store's rule


def _resumable(queue: Runs, run: str, target: str | None) -> str:
    from perago.errors import RunNotFoundError
    from perago.model.run import RunStatus

    if run:
        return queue.find(run).id
    ended = (RunStatus.COMPLETED, RunStatus.TERMINATED)
    for record in queue.runs(limit=100):
        if record.status not in ended and target in (None, record.plan.target, record.plan.name):
            return record.id
    raise RunNotFoundError(
        "there is no unfinished run to resume", fix="`perago runs` lists them; name one"
    )


def exit_code(record: RunRecord) -> int:
    from perago.model.run import RunStatus

    codes = {RunStatus.COMPLETED: 0, RunStatus.PAUSED: _INTERRUPTED}
    return codes.get(record.status, 1)


def as_json(record: RunRecord) -> dict[str, object]:
    from perago.cli.phrasing import iso

    return {
        "run": record.id,
        "pipeline": record.plan.name,
        "target": record.plan.target,
        "status": record.status,
        "reason": record.reason,
        "workspace": record.workspace.model_dump() if record.workspace else None,
        "output_ref": record.output_ref,
        "attempts": [
            {
                "reference": a.attempt.reference_task_name,
                "task": a.attempt.task_name,
                "task_id": a.attempt.task_id,
                "retry": a.attempt.retry_count,
                "status": a.status,
                "reason": a.reason,
                "started_at": iso(a.started_at),
                "ended_at": iso(a.ended_at),
                "output": a.output or None,
            }
            for a in record.attempts
        ],
    }


def summary(record: RunRecord) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from perago.cli.live import attempts_table

    lines: list[RenderableType] = [attempts_table(record)]
    style = {"COMPLETED": "green", "PAUSED": "yellow"}.get(record.status, "red")
    lines.append(Text.assemble(("run ", "dim"), record.id, "  ", (record.status, style)))
    if record.reason:
        lines.append(Text(f"  {record.reason}"))
    if way_on := _way_on(record):
        lines.append(Text(f"  {way_on}", style="bold"))
    return Group(*lines)


def _way_on(record: RunRecord) -> str | None:
    from perago.model.attempt import TaskStatus
    from perago.model.run import RunStatus

    if record.status in (RunStatus.COMPLETED, RunStatus.TERMINATED):
        return None
    if record.attempts[-1].status is TaskStatus.FAILED_WITH_TERMINAL_ERROR:
        return "a retry can't help: mend the input, then start again with --from-head"
    return f"go on with: perago run --resume {record.id}"
