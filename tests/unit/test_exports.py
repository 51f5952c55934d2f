"""The public names: adding or dropping one is a decision, made here."""

import subprocess
import sys

import pytest

import perago

EXPORTS = [
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


def test_the_package_exports_these_names_and_no_other():
    assert perago.__all__ == EXPORTS
    assert dir(perago) == EXPORTS


@pytest.mark.parametrize("name", EXPORTS)
def test_an_export_can_be_used(name):
    assert getattr(perago, name).__name__ == name


@pytest.mark.parametrize("name", ["MetricSpec", "MetricRecorder"])
def test_metrics_of_a_task_are_said_not_to_be_there(name):
    with pytest.raises(perago.TaskDefinitionError, match=f"there is no {name} here"):
        exec(f"from perago import {name}")  # noqa: S102 - the statement as a module has it


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'perago' has no attribute 'tsak'"):
        _ = perago.tsak


def test_importing_the_package_imports_nothing_heavy():
    script = "import sys, perago; print(int('pydantic' in sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "0"
