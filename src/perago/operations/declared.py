"""What a module or a pipeline declares, and the Conductor definitions that follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.declare.loading import load_module, load_pipeline, pipelines_of, tasks_of
from perago.errors import TaskDefinitionError
from perago.model.controls import budget_warnings
from perago.wiring import task_definition, workflow_definition

if TYPE_CHECKING:
    from perago.declare.pipeline import Pipeline
    from perago.declare.task import Task


@dataclass(frozen=True, slots=True)
class Declared:
    """The tasks and pipelines of one target."""

    target: str
    tasks: tuple[Task[..., Any, Any], ...]
    pipelines: tuple[Pipeline, ...]


@dataclass(frozen=True, slots=True)
class GeneratedDefinitions:
    """TaskDefs and WorkflowDefs, each once, with warnings about them."""

    tasks: tuple[dict[str, object], ...]
    workflows: tuple[dict[str, object], ...]
    warnings: tuple[str, ...]


def load_declared(target: str) -> Declared:
    """Import ``module``, ``path/to/module.py`` or ``module:pipeline`` and list what it declares.

    Raises TaskDefinitionError, also for a pipeline that no worker process could run.
    """
    if ":" in target:
        return declared_by(load_pipeline(target), target)
    module = load_module(target)
    tasks = tasks_of(module)
    if not tasks:
        raise TaskDefinitionError(
            f"module {target!r} declares no task",
            fix="declare one with @task(…), or name the module that does",
        )
    pipelines = tuple(load_pipeline(f"{target}:{name}") for name in pipelines_of(module))
    return Declared(target, tuple(tasks), pipelines)


def declared_by(pipeline: Pipeline, target: str | None = None) -> Declared:
    """A pipeline with its own tasks only."""
    return Declared(target or pipeline.target, tuple(pipeline.tasks), (pipeline,))


def definitions_of(*declared: Declared) -> GeneratedDefinitions:
    """Generate Conductor's definitions. Raises TaskDefinitionError for what has no JSON schema.

    A lease that is shorter than its task's publish budget needs gives a warning.
    """
    tasks = {task.name: task for one in declared for task in one.tasks}
    pipelines = {pipeline.name: pipeline for one in declared for pipeline in one.pipelines}
    writing = [t for t in tasks.values() if t.workspace and not t.workspace.read_only]
    return GeneratedDefinitions(
        tuple(task_definition(task) for task in tasks.values()),
        tuple(workflow_definition(pipeline) for pipeline in pipelines.values()),
        tuple(
            f"{task.location}: task {task.name!r}: {warning}"
            for task in writing
            for warning in budget_warnings(task.controls)
        ),
    )
