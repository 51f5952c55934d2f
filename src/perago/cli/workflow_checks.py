"""Workflow definitions for ``perago check --workflow``: where they come from, what is found."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.cli.phrasing import count
from perago.errors import (
    DefinitionDiffersError,
    PeragoError,
    RuntimeConfigError,
    UnsafeWorkflowError,
)
from perago.operations.workflow_check import check_workflow, effects_of, read_definition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.text import Text

    from perago.declare.task import Task
    from perago.operations.workflow_check import Definition, Findings
    from perago.ports.definitions import Definitions
    from perago.settings import Settings


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
        from perago.cli.opening import for_this_command
        from perago.wiring import open_definitions

        return for_this_command(open_definitions(self._settings))


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
            result: Findings | PeragoError
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
    source: str, definition: Definition | None, found: Findings | PeragoError
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
    return named | {"problems": problems, "warnings": list(found.doubts), "error": error}


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
