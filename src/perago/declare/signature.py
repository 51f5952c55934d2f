"""Reads the signature of a task's body. An error has the corrected ``def`` line as its fix."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast, get_type_hints

from pydantic import BaseModel, RootModel

from perago.declare.workspace import SparkWorkspace
from perago.errors import TaskDefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

SPARK = "spark"

ENGINES: dict[type, str] = {Path: "local", SparkWorkspace: SPARK}
"""The engine of a task, by the type of its body's workspace parameter."""


@dataclass(frozen=True, slots=True)
class BodySignature:
    """The models a body takes and returns. ``engine`` is None without a workspace."""

    params: type[BaseModel]
    result: type[BaseModel]
    engine: str | None


@dataclass(frozen=True, slots=True)
class Location:
    """A file and a line in it."""

    file: str
    line: int

    def __str__(self) -> str:
        path = Path(self.file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{shown}:{self.line}"


def location_of(body: Callable[..., object]) -> Location:
    """The line of the body's ``def``; a code object has only that of the first decorator."""
    code = inspect.unwrap(body).__code__
    line = code.co_firstlineno
    while text := linecache.getline(code.co_filename, line):
        if text.lstrip().startswith(("def ", "async def ")):
            return Location(code.co_filename, line)
        line += 1
    return Location(code.co_filename, code.co_firstlineno)


def read_signature(
    body: object, *, task_name: str, with_workspace: bool, scope: Mapping[str, Any]
) -> BodySignature:
    """The body's models. ``scope`` has the local names around a nested function.

    Raises TaskDefinitionError, with file, line and the corrected line, for any other shape than
    ``(workspace, params) -> Result`` or, without a workspace, ``(params) -> Result``.
    """
    if not inspect.isfunction(body):
        raise TaskDefinitionError(
            f"task {task_name!r}: @task is put on {body!r}, which is not a function",
            fix="put @task(…) directly above a def, as its outermost decorator",
        )
    reader = _Reader(body, task_name, with_workspace, dict(scope))
    return reader.read()


@dataclass(frozen=True)
class _Reader:
    """The checks, in the order in which one reads a signature."""

    body: FunctionType
    task_name: str
    with_workspace: bool
    scope: dict[str, Any]

    def read(self) -> BodySignature:
        self._refuse_other_kinds_of_function()
        self._refuse_other_kinds_of_parameter()
        self._check_count()
        hints = self._resolve_annotations()
        return BodySignature(
            params=self._model(self._parameters[-1].name, hints),
            result=self._model("return", hints),
            engine=self._engine(hints) if self.with_workspace else None,
        )

    @property
    def _parameters(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.body).parameters.values())

    def _refuse_other_kinds_of_function(self) -> None:
        if inspect.iscoroutinefunction(self.body):
            self._refuse("the body is async, and must be a plain function")
        if inspect.isgeneratorfunction(self.body) or inspect.isasyncgenfunction(self.body):
            self._refuse("the body is a generator, and must return one result")

    def _refuse_other_kinds_of_parameter(self) -> None:
        for parameter in self._parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                self._refuse(f"{parameter} takes any number of arguments, and none would be given")
            if parameter.kind is parameter.KEYWORD_ONLY:
                self._refuse(f"{parameter.name!r} is keyword-only; arguments are given by position")
            if parameter.default is not parameter.empty:
                self._refuse(
                    f"{parameter.name!r} has a default value that would never be used; "
                    "defaults belong in the params model"
                )

    def _check_count(self) -> None:
        wanted, found = 2 if self.with_workspace else 1, len(self._parameters)
        if found == wanted:
            return
        shape = (
            "with workspace=… the body takes a workspace and its params"
            if self.with_workspace
            else "without workspace=… the body takes its params alone"
        )
        self._refuse(f"{shape}, and this one takes {found} parameter(s)")

    def _resolve_annotations(self) -> dict[str, Any]:
        try:
            hints = get_type_hints(self.body, localns=self.scope)
        except NameError as error:
            raise self._error(
                f"the annotation {error.name!r} can't be resolved when the module is imported",
                fix=f"import or define {error.name} at module level, above the task and not under "
                f"'if TYPE_CHECKING:'",
            ) from None
        except (TypeError, SyntaxError, AttributeError) as error:
            self._refuse(f"an annotation can't be resolved: {error}")
        for name in (*(parameter.name for parameter in self._parameters), "return"):
            if name not in hints:
                self._refuse(f"{_described(name)} has no annotation")
        return hints

    def _engine(self, hints: Mapping[str, Any]) -> str:
        name = self._parameters[0].name
        if not _is_workspace(hints[name]):
            known = " or ".join(kind.__name__ for kind in ENGINES)
            self._refuse(
                f"the workspace parameter {name!r} is a {type_name(hints[name])}, and must be "
                f"{known}"
            )
        return ENGINES[hints[name]]

    def _model(self, name: str, hints: Mapping[str, Any]) -> type[BaseModel]:
        annotation = hints[name]
        if not _is_model(annotation):
            self._refuse(
                f"{_described(name)} is a {type_name(annotation)}, and must be a class of yours "
                f"that derives from pydantic.BaseModel"
            )
        if issubclass(annotation, RootModel):
            raise self._error(
                f"{_described(name)} is the RootModel {type_name(annotation)}, and contracts have "
                f"named fields",
                fix=f"write class {type_name(annotation)}(BaseModel): with a field for that value",
            )
        return cast("type[BaseModel]", annotation)

    def _refuse(self, problem: str) -> NoReturn:
        raise self._error(problem, fix=f"write {self._corrected()}")

    def _error(self, problem: str, *, fix: str) -> TaskDefinitionError:
        return TaskDefinitionError(
            f"{location_of(self.body)}: task {self.task_name!r}: {problem}", fix=fix
        )

    def _corrected(self) -> str:
        """The ``def`` line as it should be; what is right about it stays."""
        hints = self._resolvable_hints()
        models = [p.name for p in self._parameters if _is_model(hints.get(p.name))]
        workspaces = [p.name for p in self._parameters if _is_workspace(hints.get(p.name))]
        if models and not workspaces:
            workspaces = [p.name for p in self._parameters if p.name != models[0]]
        camel = "".join(word.title() for word in self.body.__name__.split("_"))
        taken = (
            f"{models[0]}: {type_name(hints[models[0]])}" if models else f"params: {camel}Params"
        )
        if self.with_workspace:
            kind = hints.get(workspaces[0]) if workspaces else None
            written = type_name(kind) if _is_workspace(kind) else "Path"
            taken = f"{workspaces[0] if workspaces else 'workspace'}: {written}, {taken}"
        returned = hints.get("return")
        result = type_name(returned) if _is_model(returned) else f"{camel}Result"
        return f"def {self.body.__name__}({taken}) -> {result}:"

    def _resolvable_hints(self) -> dict[str, Any]:
        try:
            return get_type_hints(self.body, localns=self.scope)
        except (NameError, TypeError, SyntaxError, AttributeError):
            return {}


def _described(name: str) -> str:
    return "the return value" if name == "return" else f"parameter {name!r}"


def _is_workspace(annotation: object) -> bool:
    return any(annotation is kind for kind in ENGINES)


def _is_model(annotation: object) -> bool:
    return (
        isinstance(annotation, type)
        and issubclass(annotation, BaseModel)
        and annotation is not BaseModel
    )


def type_name(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
