"""Checks of a workflow definition what operators promise: that one branch is written serially.

``definition`` reads it, ``walk`` goes every way through it and ``taking`` judges each workspace
that a task takes. Nothing here knows a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perago.operations.workflow_check.context import CheckResult, Problem, Resolve, Survey
from perago.operations.workflow_check.definition import Definition, read_definition
from perago.operations.workflow_check.interpreter import walk
from perago.operations.workflow_check.values import Given
from perago.operations.workflow_check.workspace_rule import Effect

if TYPE_CHECKING:
    from perago.declare.task import Task

__all__ = [
    "CheckResult",
    "Definition",
    "Problem",
    "check_workflow",
    "effects_of",
    "read_definition",
]


def check_workflow(
    definition: Definition,
    effects: Mapping[str, Effect] | None = None,
    resolve: Resolve = lambda _name, _version: None,
) -> CheckResult:
    """Every task that might write a branch beside another, or takes another workspace than it must.

    ``effects`` says what tasks do by name; one that isn't known writes the workspace it is given.
    Raises UnsafeWorkflowError if the workflow has too many paths to follow, TaskDefinitionError for
    a sub-workflow that isn't well formed.
    """
    survey = Survey(effects or {}, resolve)
    walk(definition, Given("workflow.input"), survey)
    return survey.notes.findings()


def effects_of(tasks: Iterable[Task[..., Any, Any]]) -> dict[str, Effect]:
    """What declared tasks do to their workspaces, by name."""
    return {task.name: _effect(task) for task in tasks}


def _effect(task: Task[..., Any, Any]) -> Effect:
    if task.workspace is None:
        return Effect.NONE
    return Effect.READS if task.workspace.read_only else Effect.WRITES
