"""Which modules and pipelines a command is about, and what is in them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from perago.declare.pipeline import Pipeline
    from perago.declare.task import Task


@dataclass(frozen=True, slots=True)
class Declared:
    """The tasks and pipelines of one target."""

    target: str
    tasks: tuple[Task[..., Any, Any], ...]
    pipelines: tuple[Pipeline, ...]


def load_declared(target: str) -> Declared:
    """What ``module``, ``path/to/module.py`` or ``module:pipeline`` declares.

    Raises TaskDefinitionError, also for a pipeline that no worker process could run.
    """
    from perago.declare.loading import load_module, load_pipeline, pipelines_of, tasks_of
    from perago.errors import TaskDefinitionError

    if ":" in target:
        pipeline = load_pipeline(target)
        return Declared(target, tuple(pipeline.tasks), (pipeline,))
    module = load_module(target)
    tasks = tasks_of(module)
    if not tasks:
        raise TaskDefinitionError(
            f"module {target!r} declares no task",
            fix="declare one with @task(…), or name the module that does",
        )
    pipelines = tuple(load_pipeline(f"{target}:{name}") for name in pipelines_of(module))
    return Declared(target, tuple(tasks), pipelines)


@dataclass(frozen=True, slots=True)
class Generated:
    """TaskDefs and WorkflowDefs of some targets, each once, and what is doubtful about them."""

    tasks: tuple[dict[str, object], ...]
    workflows: tuple[dict[str, object], ...]
    warnings: tuple[str, ...]


def definitions_of(*declared: Declared) -> Generated:
    """What Conductor is to know of these. Raises TaskDefinitionError for what has no JSON schema.

    A lease that is too short for the task's publish budget is a warning.
    """
    from perago.declare.definitions import task_definition, workflow_definition
    from perago.model.controls import budget_warnings

    tasks = {task.name: task for one in declared for task in one.tasks}
    pipelines = {pipeline.name: pipeline for one in declared for pipeline in one.pipelines}
    writing = [t for t in tasks.values() if t.workspace and not t.workspace.read_only]
    return Generated(
        tuple(task_definition(task) for task in tasks.values()),
        tuple(workflow_definition(pipeline) for pipeline in pipelines.values()),
        tuple(
            f"{task.location}: task {task.name!r}: {warning}"
            for task in writing
            for warning in budget_warnings(task.controls)
        ),
    )


def resolve_targets(given: tuple[str, ...]) -> tuple[str, ...]:
    """What was given, else ``modules`` of ``[tool.perago]`` in the pyproject.toml here.

    Raises RuntimeConfigError if neither says anything.
    """
    if named := given or listed_modules():
        return named
    raise RuntimeConfigError(
        "no module was named, and pyproject.toml here has no list of them",
        fix='name one, or write [tool.perago] modules = ["package.tasks"] in pyproject.toml',
    )


def listed_modules() -> tuple[str, ...]:
    """The modules that the pyproject.toml here lists; none if it doesn't."""
    project = Path("pyproject.toml")
    try:
        settings = tomllib.loads(project.read_text(encoding="utf-8")) if project.is_file() else {}
    except tomllib.TOMLDecodeError as error:
        raise RuntimeConfigError(f"{project}: {error}", fix="correct that line") from None
    modules = settings.get("tool", {}).get("perago", {}).get("modules")
    if not isinstance(modules, list) or not all(isinstance(module, str) for module in modules):
        return ()
    return tuple(modules)
