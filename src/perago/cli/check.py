"""``perago check``: every mistake in every module, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common_with
from perago.cli.phrasing import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.declare.task import Task
    from perago.settings import Settings

_WRONG = 2


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option(
    "--workflow",
    "workflows",
    multiple=True,
    metavar="FILE|NAME[:VERSION]",
    help="Check this Conductor workflow definition too: a .json file, or what the server has. May "
    "be repeated.",
)
@common_with(on=True)
def command(
    *,
    targets: tuple[str, ...],
    workflows: tuple[str, ...],
    speaker: Speaker,
    settings: Settings,
) -> int:
    """Validate task modules, pipelines and workflows; exit code 2 if any is wrong.

    A module is named as in an import, or by its path. Without any, the ones listed under
    modules of [tool.perago] in pyproject.toml are checked. All are looked at, whatever the first
    ones say. Warnings don't change the exit code.

    A workflow is wrong if two of its tasks could write one branch at the same time, or if a task
    takes another workspace than the one before it put out, on any path. Name the modules of its
    tasks: a task that isn't known counts as one that writes the workspace it is given.

    \b
    JSON: {"ok": bool, "checked": [{"target", "tasks": [{name, location, engine}], "pipelines":
      [{name, target, steps}], "warnings": [text], "error": {code, message, fix} | null}],
      "workflows": [{"target", "name", "version", "problems": [{workflow, task, takes, should_take,
      message, fix}], "warnings": [text], "error": {code, message, fix} | null}]}
    """
    from perago.cli.modules import listed_modules, resolve_targets
    from perago.cli.workflow_checks import check_sources

    named = (targets or listed_modules()) if workflows else resolve_targets(targets)
    tasks: list[Task[..., Any, Any]] = []
    checked = [_check(target, tasks) for target in named]
    followed = check_sources(workflows, tasks, settings)
    ok = all(one["error"] is None for one in (*checked, *followed))
    document = {"ok": ok, "checked": checked, "workflows": followed}
    speaker.say(document, lambda: _layout(checked, followed))
    return 0 if ok else _WRONG


def _check(target: str, tasks: list[Task[..., Any, Any]]) -> dict[str, Any]:
    """What is found in a target; its tasks are added to ``tasks``."""
    from perago.cli.modules import load_declared
    from perago.cli.workflow_checks import failure_of
    from perago.errors import PeragoError

    found: dict[str, Any] = {"target": target, "tasks": [], "pipelines": [], "warnings": []}
    try:
        declared = load_declared(target)
        tasks += declared.tasks
        for pipeline in declared.pipelines:
            found["pipelines"].append(
                {
                    "name": pipeline.name,
                    "target": pipeline.target,
                    "steps": [step.reference for step in pipeline.steps],
                }
            )
        for task in declared.tasks:
            found["tasks"].append(
                {"name": task.name, "location": str(task.location), "engine": task.engine}
            )
            found["warnings"] += [
                f"{task.location}: task {task.name!r}: {w}" for w in _warnings(task)
            ]
    except PeragoError as error:
        return found | {"error": failure_of(error)}
    return found | {"error": None}


def _warnings(task: Task[..., Any, Any]) -> list[str]:
    """Also raises what only shows when the definition is generated, such as a missing schema."""
    from perago.declare.definitions import task_definition
    from perago.model.controls import budget_warnings

    task_definition(task)
    about_files = task.workspace.warnings() if task.workspace else []
    publishes = task.workspace is not None and not task.workspace.read_only
    return [*about_files, *(budget_warnings(task.controls) if publishes else [])]


def _layout(checked: list[dict[str, Any]], followed: list[dict[str, Any]]) -> RenderableType:
    from rich.text import Text

    from perago.cli.workflow_checks import lay_out

    text = Text()
    for one in checked:
        text.append("✗ " if one["error"] else "✓ ", style="red" if one["error"] else "green")
        text.append(f"{one['target']}\n", style="bold")
        for task in one["tasks"]:
            text.append(f"    task {task['name']}  ({task['location']})\n")
        for pipeline in one["pipelines"]:
            text.append(f"    pipeline {pipeline['name']}: {' → '.join(pipeline['steps'])}\n")
        for warning in one["warnings"]:
            text.append("    warning: ", style="yellow").append(f"{warning}\n")
        if one["error"]:
            text.append("    error: ", style="red").append(f"{one['error']['message']}\n")
            text.append("    fix: ", style="green").append(f"{one['error']['fix']}\n")
    for one in followed:
        lay_out(text, one)
    everything = (*checked, *followed)
    wrong = sum(one["error"] is not None for one in everything)
    text.append(f"{count(len(everything), 'target')} checked, {wrong} wrong")
    return text
