"""Checks that a workflow definition writes each branch serially, as the protocol requires.

``definition`` reads the JSON, ``interpreter`` follows every path through it, ``path_state`` is what
holds at one point of a path, and ``workspace_rule`` checks the workspace that each task uses.
Nothing here talks to a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from perago.operations.workflow_check.context import CheckContext, CheckResult, Problem, Resolve
from perago.operations.workflow_check.definition import Definition, read_definition
from perago.operations.workflow_check.interpreter import check_all_paths
from perago.operations.workflow_check.values import Input
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
    """Find the tasks that may write a branch at the same time, or that use the wrong workspace.

    ``effects`` says what tasks do, by task name; an unknown task writes the workspace it is given.
    ``resolve`` finds the definitions of other workflows. Raises UnsafeWorkflowError if the workflow
    has too many paths to follow, and TaskDefinitionError for a malformed sub-workflow.
    """
    context = CheckContext(effects or {}, resolve)
    check_all_paths(definition, Input("workflow.input"), context)
    return context.report.result()


def effects_of(tasks: Iterable[Task[..., Any, Any]]) -> dict[str, Effect]:
    """What declared tasks do to their workspaces, by name."""
    return {task.name: _effect(task) for task in tasks}


def _effect(task: Task[..., Any, Any]) -> Effect:
    if task.workspace is None:
        return Effect.NONE
    return Effect.READS if task.workspace.read_only else Effect.WRITES
