"""``perago check``: every mistake in every module, before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common
from perago.cli.phrasing import count

if TYPE_CHECKING:
    from rich.console import RenderableType

    from perago.cli.options import Speaker
    from perago.declare.task import Task
    from perago.settings import Settings

_WRONG = 2


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@common
def command(*, targets: tuple[str, ...], speaker: Speaker, settings: Settings) -> int:
    """Validate task modules and pipelines; exit code 2 if any is wrong.

    A module is named as in an import, or by its path. Without any, the ones listed under
    modules of [tool.perago] in pyproject.toml are checked. All are looked at, whatever the first
    ones say. Warnings don't change the exit code.

    \b
    JSON: {"ok": bool, "checked": [{"target", "tasks": [{name, location, engine}], "pipelines":
      [{name, target, steps}], "warnings": [text], "error": {code, message, fix} | null}]}
    """
    from perago.cli.modules import resolve_targets

    del settings
    checked = [_check(target) for target in resolve_targets(targets)]
    ok = all(one["error"] is None for one in checked)
    speaker.say({"ok": ok, "checked": checked}, lambda: _layout(checked))
    return 0 if ok else _WRONG


def _check(target: str) -> dict[str, Any]:
    from perago.cli.modules import load_declared
    from perago.errors import PeragoError

    found: dict[str, Any] = {"target": target, "tasks": [], "pipelines": [], "warnings": []}
    try:
        declared = load_declared(target)
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
        failure = {"code": error.code, "message": error.message, "fix": error.fix}
        return found | {"error": failure}
    return found | {"error": None}


def _warnings(task: Task[..., Any, Any]) -> list[str]:
    """Also raises what only shows when the definition is generated, such as a missing schema."""
    from perago.declare.definitions import task_definition
    from perago.model.controls import budget_warnings

    task_definition(task)
    about_files = task.workspace.warnings() if task.workspace else []
    publishes = task.workspace is not None and not task.workspace.read_only
    return [*about_files, *(budget_warnings(task.controls) if publishes else [])]


def _layout(checked: list[dict[str, Any]]) -> RenderableType:
    from rich.text import Text

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
    wrong = sum(one["error"] is not None for one in checked)
    text.append(f"{count(len(checked), 'target')} checked, {wrong} wrong")
    return text
