"""``perago check``: find mistakes in modules, pipelines and Conductor workflows before they run."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perago.cli.options import close_with_command, common_options
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


_WRONG = 2


@click.command()
@click.argument("targets", nargs=-1, metavar="[MODULE|MODULE:PIPELINE]…")
@click.option(
    "--workflow",
    "workflows",
    multiple=True,
    metavar="FILE|NAME[:VERSION]",
    help="Check this Conductor workflow definition, too: a .json file, or one of the server. May "
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
    """Validate task modules, pipelines and workflows. Exit code 2 if any is wrong.

    Name a module as in an import, or by its path. Without arguments, the command checks the modules
    that [tool.perago] in ./pyproject.toml lists. It checks all of them, even if the first are
    wrong. Warnings don't change the exit code.

    A workflow is wrong if two of its tasks can write one branch at the same time, or if on any path
    a task gets another workspace than the one that the task before it returned. Name the modules
    of its tasks, too: an unknown task counts as one that writes its workspace.

    \b
    JSON: {"ok": bool, "checked": [{"target", "tasks": [{name, location, engine}], "pipelines":
      [{name, target, steps}], "warnings": [text], "error": {code, message, fix} | null}],
      "workflows": [{"target", "name", "version", "problems": [{workflow, task, takes, should_take,
      message, fix}], "warnings": [text], "error": {code, message, fix} | null}]}
    """
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
    """Check one target; adds its tasks to ``tasks``."""
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
        return found | {"error": error_document(error)}
    return found | {"error": None}


def _warnings(task: Task[..., Any, Any]) -> list[str]:
    """Raises TaskDefinitionError for what only shows in a definition, such as a missing schema."""
    from perago.model.controls import budget_warnings
    from perago.wiring import task_definition

    task_definition(task)
    about_files = task.workspace.warnings() if task.workspace else []
    publishes = task.workspace is not None and not task.workspace.read_only
    return [*about_files, *(budget_warnings(task.controls) if publishes else [])]


def _layout(checked: list[dict[str, Any]], followed: list[dict[str, Any]]) -> RenderableType:
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
    for one in followed:
        _append_workflow(text, one)
    everything = (*checked, *followed)
    wrong = sum(one["error"] is not None for one in everything)
    text.append(f"{count(len(everything), 'target')} checked, {wrong} wrong")
    return text


class DefinitionSource:
    """Workflow definitions: those of the named files, and Conductor's if its address is set."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._from_files: list[Definition] = []

    def load(self, source: str) -> list[Definition]:
        """The definitions in a FILE, or the one that Conductor has as NAME[:VERSION].

        Raises RuntimeConfigError for a file that can't be read, TaskDefinitionError for one that
        isn't well formed, DefinitionDiffersError for a name that isn't registered.
        """
        if not source.endswith(".json") and not Path(source).is_file():
            return [self._registered(source)]
        found = [read_definition(one) for one in _workflows_in(_read(source), source)]
        self._from_files += found
        return found

    def find(self, name: str, version: int | None) -> Definition | None:
        """A workflow that another one calls as a sub-workflow; None if it is not known."""
        same = [one for one in self._from_files if one.name == name]
        matching = [one for one in same if version in (None, one.version)]
        if matching:
            return max(matching, key=lambda one: one.version or 0)
        if self._settings.conductor_url is None:
            return None
        found = self._server.workflow(name, version)
        return None if found is None else read_definition(found)

    def _registered(self, source: str) -> Definition:
        name, _, version = source.partition(":")
        if version and not version.isdecimal():
            raise RuntimeConfigError(
                f"--workflow {source}: {version!r} is not a version",
                fix="write NAME or NAME:VERSION, or name a .json file",
            )
        found = self._server.workflow(name, int(version) if version else None)
        if found is None:
            raise DefinitionDiffersError(
                f"Conductor has no workflow {source!r}, and there is no such file",
                fix="`perago register` registers pipelines; check the name, or name a .json file",
            )
        return read_definition(found)

    @cached_property
    def _server(self) -> Definitions:
        from perago.wiring import open_definitions

        return close_with_command(open_definitions(self._settings))


def check_sources(
    sources: Sequence[str], tasks: Iterable[Task[..., Any, Any]], settings: Settings
) -> list[dict[str, Any]]:
    """Check each workflow of each source, in the given order; one document for each."""
    known, effects = DefinitionSource(settings), effects_of(tasks)
    # Load all before checking any: a workflow may call one of a later file.
    loaded = [(source, _loaded(known, source)) for source in sources]
    found = []
    for source, definitions in loaded:
        if isinstance(definitions, PeragoError):
            found.append(_document(source, None, definitions))
            continue
        for definition in definitions:
            result: CheckResult | PeragoError
            try:
                result = check_workflow(definition, effects, known.find)
            except PeragoError as error:
                result = error
            found.append(_document(source, definition, result))
    return found


def _append_workflow(text: Text, one: Mapping[str, Any]) -> None:
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


def _loaded(known: DefinitionSource, source: str) -> list[Definition] | PeragoError:
    try:
        return known.load(source)
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
        return named | {"problems": [], "warnings": [], "error": error_document(found)}
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
        error = error_document(UnsafeWorkflowError(f"{first.message}{others}", fix=first.fix))
    return named | {"problems": problems, "warnings": list(found.warnings), "error": error}


def error_document(error: PeragoError) -> dict[str, str | None]:
    """An error as JSON."""
    return {"code": error.code, "message": error.message, "fix": error.fix}


def _read(source: str) -> object:
    try:
        return json.loads(Path(source).read_bytes())
    except OSError as error:
        problem = error.strerror or str(error)
    except ValueError as error:
        problem = f"not JSON: {error}"
    raise RuntimeConfigError(
        f"--workflow {source}: {problem}",
        fix="name a file with a WorkflowDef, such as `perago extract --out` writes",
    )


def _workflows_in(document: object, source: str) -> Iterator[object]:
    """The file may hold one definition, a list, or what ``perago extract`` prints."""
    listed = document.get("workflows", [document]) if isinstance(document, dict) else document
    if not isinstance(listed, list) or not listed:
        raise RuntimeConfigError(
            f"--workflow {source}: the file has no workflow definition",
            fix="name a file with a WorkflowDef, such as `perago extract --out` writes",
        )
    yield from listed
