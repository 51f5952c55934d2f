"""Typed Python tasks on versioned data: what a task module imports.

Public names are those in ``__all__`` here (for task authors), in :mod:`perago.ports` (for adapter
authors) and in :mod:`perago.testing` (for test authors). All other modules are private and may
change. Names are resolved on first use, so that ``import perago`` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.lazy_exports import import_export

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

_WITHOUT_METRICS = ("MetricRecorder", "MetricSpec")
"""Names of perago 0.6.1 that don't exist here, because a task has no metrics of its own."""


def __getattr__(name: str) -> object:
    if name in _WITHOUT_METRICS:
        from perago.errors import TaskDefinitionError

        # An import statement would replace the message of an AttributeError.
        raise TaskDefinitionError(
            f"there is no {name} here: a task has no metrics of its own",
            fix="leave metrics=… and the parameter out; a worker counts and times every attempt "
            "by itself, see `perago start --help`",
        )
    return import_export(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted(__all__)
