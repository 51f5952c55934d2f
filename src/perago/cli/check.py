"""``perago check``: every mistake in every module, before anything runs."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import common_options
from perago.errors import (
    DefinitionDiffersError,
    PeragoError,
    RuntimeConfigError,
    UnsafeWorkflowError,
)
from perago.formatting import count
from perago.operations.workflow_check import check_workflow, effects_of, read_definition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType
    from rich.text import Text

    from perago.cli.output import Output
    from perago.declare.task import Task
    from perago.operations.workflow_check import CheckResult, Definition
    from perago.ports.orchestrator import Definitions
    from perago.settings import Settings


# --- Workflow definitions for ``perago check --workflow``: where they come from, what is ---


class Shelf:
    """The definitions at hand: of the files that were named, and of Conductor if it is known."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._from_files: list[Definition] = []

    def take(self, source: str) -> list[Definition]:
        """What a FILE holds, or what NAME[:VERSION] means on Conductor.

        Raises RuntimeConfigError for a file that can't be read, TaskDefinitionError for one that
        isn't well formed, DefinitionDiffersError for a name that isn't registered.
        """
        if not source.endswith(".json") and not Path(source).is_file():
            return [self._registered(source)]
        found = [read_definition(one) for one in _workflows_in(_read(source), source)]
        self._from_files += found
        return found

    def find(self, name: str, version: int | None) -> Definition | None:
        """A workflow that another one calls."""
        same = [one for one in self._from_files if one.name == name]
        matching = [one for one in same if version in (None, one.version)]
        if matching:
            return max(matching, key=lambda one: one.version or 0)
        if self._settings.conductor_url is None:
            return None
        found = self._server.workflow(name, version)
        return None if found is None else read_definition(found)

    def _registered(self, source: str) -> Definition:
        name, _, said = source.partition(":")
        if said and not said.isdecimal():
            raise RuntimeConfigError(
                f"--workflow {source}: {said!r} is no version",
                fix="write NAME or NAME:VERSION, or name a .json file",
            )
        found = self._server.workflow(name, int(said) if said else None)
        if found is None:
            raise DefinitionDiffersError(
                f"Conductor has no workflow {source!r}, and there is no such file",
                fix="`perago register` registers pipelines; check the name, or name a .json file",
            )
        return read_definition(found)

    @cached_property
    def _server(self) -> Definitions:
        from perago.cli.options import close_with_command
        from perago.wiring import open_definitions

        return close_with_command(open_definitions(self._settings))


def check_sources(
    sources: Sequence[str], tasks: Iterable[Task[..., Any, Any]], settings: Settings
) -> list[dict[str, Any]]:
    """What is found in each workflow of each source, in their order."""
    shelf, effects = Shelf(settings), effects_of(tasks)
    # All are read before any is checked: a workflow may call one of a later file.
    read = [(source, _taken(shelf, source)) for source in sources]
    found = []
    for source, definitions in read:
        if isinstance(definitions, PeragoError):
            found.append(_document(source, None, definitions))
            continue
        for definition in definitions:
            result: CheckResult | PeragoError
            try:
                result = check_workflow(definition, effects, shelf.find)
            except PeragoError as error:
                result = error
            found.append(_document(source, definition, result))
    return found


def lay_out(text: Text, one: Mapping[str, Any]) -> None:
    """A checked workflow, for people."""
    text.append("✗ " if one["error"] else "✓ ", style="red" if one["error"] else "green")
    named = f": workflow {one['name']}" if one["name"] else ""
    text.append(f"{one['target']}{named}\n", style="bold")
    for warning in one["warnings"]:
        text.append("    warning: ", style="yellow").append(f"{warning}\n")
    for problem in one["problems"] or filter(None, [one["error"]]):
        text.append("    error: ", style="red").append(f"{problem['message']}\n")
        if should_take := problem.get("should_take"):
            text.append("    should be: ", style="green").append(f"{should_take}\n")
        text.append("    fix: ", style="green").append(f"{problem['fix']}\n")


def _taken(shelf: Shelf, source: str) -> list[Definition] | PeragoError:
    try:
        return shelf.take(source)
    except PeragoError as error:
        return error


def _document(
    source: str, definition: Definition | None, found: CheckResult | PeragoError
) -> dict[str, Any]:
    named = {
        "target": source,
        "name": definition.name if definition else None,
        "version": definition.version if definition else None,
    }
    if isinstance(found, PeragoError):
        return named | {"problems": [], "warnings": [], "error": failure_of(found)}
    problems = [
        {
            "workflow": one.workflow,
            "task": one.task,
            "takes": one.takes,
            "should_take": one.should_take,
            "message": one.message,
            "fix": one.fix,
        }
        for one in found.problems
    ]
    error = None
    if problems:
        first = found.problems[0]
        others = f" (and {count(len(problems) - 1, 'more problem')})" if len(problems) > 1 else ""
        error = failure_of(UnsafeWorkflowError(f"{first.message}{others}", fix=first.fix))
    return named | {"problems": problems, "warnings": list(found.warnings), "error": error}


def failure_of(error: PeragoError) -> dict[str, str | None]:
    """An error as the JSON document has it."""
    return {"code": error.code, "message": error.message, "fix": error.fix}


def _read(source: str) -> object:
    try:
        return json.loads(Path(source).read_bytes())
    except OSError as error:
        problem = error.strerror or str(error)
    except ValueError as error:
        problem = f"it is no JSON: {error}"
    raise RuntimeConfigError(
        f"--workflow {source}: {problem}",
        fix="name a file with a WorkflowDef, such as `perago extract --out` writes",
    )


def _workflows_in(document: object, source: str) -> Iterator[object]:
    """One definition, a list of them, or what ``perago extract`` prints."""
    listed = document.get("workflows", [document]) if isinstance(document, dict) else document
    if not isinstance(listed, list) or not listed:
        raise RuntimeConfigError(
            f"--workflow {source}: there is no workflow definition in it",
            fix="name a file with a WorkflowDef, such as `perago extract --out` writes",
        )
    yield from listed


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
@common_options(on=True)
def command(
    *,
    targets: tuple[str, ...],
    workflows: tuple[str, ...],
    output: Output,
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
    from perago.cli.check import check_sources
    from perago.cli.declared import listed_modules, resolve_targets

    named = (targets or listed_modules()) if workflows else resolve_targets(targets)
    tasks: list[Task[..., Any, Any]] = []
    checked = [_check(target, tasks) for target in named]
    followed = check_sources(workflows, tasks, settings)
    ok = all(one["error"] is None for one in (*checked, *followed))
    document = {"ok": ok, "checked": checked, "workflows": followed}
    output.show(document, lambda: _layout(checked, followed))
    return 0 if ok else _WRONG


def _check(target: str, tasks: list[Task[..., Any, Any]]) -> dict[str, Any]:
    """What is found in a target; its tasks are added to ``tasks``."""
    from perago.cli.check import failure_of
    from perago.errors import PeragoError
    from perago.operations.declared import load_declared

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
    from perago.model.controls import budget_warnings
    from perago.wiring import task_definition

    task_definition(task)
    about_files = task.workspace.warnings() if task.workspace else []
    publishes = task.workspace is not None and not task.workspace.read_only
    return [*about_files, *(budget_warnings(task.controls) if publishes else [])]


def _layout(checked: list[dict[str, Any]], followed: list[dict[str, Any]]) -> RenderableType:
    from rich.text import Text

    from perago.cli.check import lay_out

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
