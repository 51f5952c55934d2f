"""Typed Python tasks on versioned data: what a task module imports, and nothing else.

Names are resolved on first use, so that ``import perago`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.declare.guardrails import forbid_glob, require_dir, require_file, require_glob
    from perago.declare.pipeline import Pipeline, pipeline
    from perago.declare.table_guardrails import require_table
    from perago.declare.task import Task, task
    from perago.declare.workspace import SparkWorkspace, WorkspaceSpec
    from perago.errors import (
        PeragoError,
        TaskDefinitionError,
        TaskExecutionError,
        TaskFailed,
        TaskTerminalError,
    )
    from perago.model.controls import (
        ExecutionLimits,
        PublishBudget,
        RetryPolicy,
        TaskControls,
        TimeoutPolicy,
    )

__all__ = [
    "ExecutionLimits",
    "PeragoError",
    "Pipeline",
    "PublishBudget",
    "RetryPolicy",
    "SparkWorkspace",
    "Task",
    "TaskControls",
    "TaskDefinitionError",
    "TaskExecutionError",
    "TaskFailed",
    "TaskTerminalError",
    "TimeoutPolicy",
    "WorkspaceSpec",
    "forbid_glob",
    "pipeline",
    "require_dir",
    "require_file",
    "require_glob",
    "require_table",
    "task",
]

_HOMES = {
    "perago.declare.guardrails": ("forbid_glob", "require_dir", "require_file", "require_glob"),
    "perago.declare.pipeline": ("Pipeline", "pipeline"),
    "perago.declare.table_guardrails": ("require_table",),
    "perago.declare.task": ("Task", "task"),
    "perago.declare.workspace": ("SparkWorkspace", "WorkspaceSpec"),
    "perago.errors": (
        "PeragoError",
        "TaskDefinitionError",
        "TaskExecutionError",
        "TaskFailed",
        "TaskTerminalError",
    ),
    "perago.model.controls": (
        "ExecutionLimits",
        "PublishBudget",
        "RetryPolicy",
        "TaskControls",
        "TimeoutPolicy",
    ),
}

_NOT_HERE = ("MetricRecorder", "MetricSpec")
"""Names of the perago package whose task modules run here, for what Perago does without them."""


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(module), name)
            globals()[name] = value
            return value
    if name in _NOT_HERE:
        from perago.errors import TaskDefinitionError

        # Not an AttributeError, which an import statement would replace by words of its own.
        raise TaskDefinitionError(
            f"there is no {name} here: a task has no metrics of its own",
            fix="leave metrics=… and the parameter out; a worker counts and times every attempt "
            "by itself, see `perago start --help`",
        )
    raise AttributeError(f"module 'perago' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
