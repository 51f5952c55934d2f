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


def resolve_targets(given: tuple[str, ...]) -> tuple[str, ...]:
    """What was given, else ``modules`` of ``[tool.perago]`` in the pyproject.toml here.

    Raises RuntimeConfigError if neither says anything.
    """
    if given:
        return given
    project = Path("pyproject.toml")
    try:
        settings = tomllib.loads(project.read_text(encoding="utf-8")) if project.is_file() else {}
    except tomllib.TOMLDecodeError as error:
        raise RuntimeConfigError(f"{project}: {error}", fix="correct that line") from None
    modules = settings.get("tool", {}).get("perago", {}).get("modules")
    if not isinstance(modules, list) or not modules or not all(isinstance(m, str) for m in modules):
        raise RuntimeConfigError(
            "no module was named, and pyproject.toml here has no list of them",
            fix='name one, or write [tool.perago] modules = ["package.tasks"] in pyproject.toml',
        )
    return tuple(modules)
