"""Imports users' modules and finds their tasks and pipelines; errors name the file and line."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perago.declare.pipeline import Pipeline
from perago.declare.signature import Location
from perago.declare.task import AnyTask, Task, by_name, declared_task
from perago.errors import TaskDefinitionError
from perago.model.declaration import did_you_mean

if TYPE_CHECKING:
    from types import ModuleType

_NOT_THE_USERS = (
    str(Path(__file__).parents[1]),
    str(Path(importlib.__file__).parent),
    "<frozen importlib",
)


def load_module(target: str) -> ModuleType:
    """Import a module by name, or by the path of its file, with the current directory importable.

    For a file outside the current directory, its own directory is put on ``sys.path``, as Python
    does for a script. Raises TaskDefinitionError with file, line and error if the import fails.
    """
    name, root, file = _module_name(target)
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise TaskDefinitionError(
                f"there is no module {name!r} in {root} or among the installed packages",
                fix="name a module as in an import, or a path that ends in .py",
            ) from None
        raise _located(error) from error
    except (Exception, SystemExit) as error:
        raise _located(error) from error
    if file is not None and Path(module.__file__ or "").resolve() != file:
        raise TaskDefinitionError(
            f"{file} can't be imported as {name!r}: that name belongs to {module.__file__}",
            fix="rename the file, or run the command from the directory it is in",
        )
    return module


def load_pipeline(target: str) -> Pipeline:
    """The pipeline at ``module:attribute``; without an attribute, the module's only pipeline.

    Raises TaskDefinitionError if there is none, listing those the module has, and if it has a task
    that a worker process can't find.
    """
    module_target, _, attribute = target.partition(":")
    module = load_module(module_target)
    found = pipelines_of(module)
    if not attribute:
        if len(found) != 1:
            listed = ", ".join(f"{module_target}:{name}" for name in found)
            raise TaskDefinitionError(
                f"module {module_target!r} has {len(found)} pipelines",
                fix=f"name one of: {listed}"
                if found
                else "declare one: songs = pipeline('songs', […])",
            )
        attribute = next(iter(found))
    if attribute not in found:
        raise TaskDefinitionError(
            f"module {module_target!r} has no pipeline {attribute!r}",
            fix=did_you_mean(attribute, found),
        )
    for step in found[attribute].steps:
        find_task(step.task.module, step.task.name)
    # Another process can't import a file outside the current directory by its module name.
    _, root, file = _module_name(module_target)
    home = module.__name__ if file is None or root == Path.cwd() else str(file)
    return replace(found[attribute], target=f"{home}:{attribute}")


def pipelines_of(module: ModuleType) -> dict[str, Pipeline]:
    """The module's pipelines by attribute, in the order of the source."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Pipeline)}


def tasks_of(module: ModuleType) -> list[AnyTask]:
    """The tasks that a module declares, imports, or uses in its pipelines, each once."""
    own = [value for value in vars(module).values() if isinstance(value, Task)]
    run = [task for pipeline in pipelines_of(module).values() for task in pipeline.tasks]
    return list(by_name((*own, *run)).values())


def find_task(module_name: str, task_name: str) -> AnyTask:
    """The task as a worker process finds it: by importing its module.

    Raises TaskDefinitionError if the module has no such task at its top level.
    """
    module = load_module(module_name)
    tasks = by_name(value for value in vars(module).values() if isinstance(value, Task))
    if task_name in tasks:
        return tasks[task_name]
    known = declared_task(task_name)
    if known and known.module == module_name and known.is_local:
        raise TaskDefinitionError(
            f"{known.location}: task {task_name!r} is declared inside a function "
            f"({known.__qualname__}), where no worker process can find it",
            fix=f"move {known.__name__} to the top level of {module_name}",
        )
    raise TaskDefinitionError(
        f"module {module_name!r} has no task {task_name!r}", fix=did_you_mean(task_name, tasks)
    )


def _module_name(target: str) -> tuple[str, Path, Path | None]:
    """The module's name, the directory to import it from and, for a path, the file."""
    here = Path.cwd()
    if not target.endswith(".py"):
        return target, here, None
    file = Path(target).resolve()
    if not file.is_file():
        raise TaskDefinitionError(
            f"there is no file {target!r} in {here}", fix="check the path, or name a module instead"
        )
    root = here if file.is_relative_to(here) else file.parent
    parts = file.relative_to(root).with_suffix("").parts
    if not all(part.isidentifier() for part in parts):
        root, parts = file.parent, (file.stem,)
    if not file.stem.isidentifier():
        raise TaskDefinitionError(
            f"{target!r} can't be imported: {file.stem!r} is not a Python name",
            fix=f"rename it to {re.sub(r'[^A-Za-z0-9_]', '_', file.stem)}.py",
        )
    return ".".join(parts), root, file


def _located(error: BaseException) -> TaskDefinitionError:
    """The error with the line that caused it: the last one that isn't Perago's or Python's."""
    if isinstance(error, TaskDefinitionError):
        if re.match(r"\S+\.py:\d+: ", error.message):
            return error
        return TaskDefinitionError(f"{_place(error)}{error.message}", fix=error.fix)
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{Location(error.filename, error.lineno or 1)}: "
        return TaskDefinitionError(f"{where}{error.msg}", fix="correct that line's syntax")
    if isinstance(error, ModuleNotFoundError):
        return TaskDefinitionError(
            f"{_place(error)}{error}", fix=f"install {error.name!r}, or correct the import"
        )
    return TaskDefinitionError(
        f"{_place(error)}importing the module raised {type(error).__name__}: {error}",
        fix="correct that line; a task module must be importable without arguments or side effects",
    )


def _place(error: BaseException) -> str:
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_NOT_THE_USERS)
    ]
    return f"{Location(frames[-1].filename, frames[-1].lineno or 1)}: " if frames else ""
