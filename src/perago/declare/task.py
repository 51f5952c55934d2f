"""``@task``: declares a function with typed params and a typed result as a task."""

from __future__ import annotations

import inspect
import sys
from functools import update_wrapper
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from pydantic import BaseModel, Field

from perago.declare import wire_json
from perago.declare.guardrails import SPARK_WILDCARD
from perago.declare.signature import BodySignature, Location, location_of, read_signature
from perago.declare.step import ResultFields, ResultReference, Step, step_of
from perago.declare.workspace import SparkWorkspace, WorkspaceSpec
from perago.errors import TaskDefinitionError
from perago.model.controls import TaskControls
from perago.model.declaration import Declaration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Args = ParamSpec("Args")
P = TypeVar("P", bound=BaseModel)
R = TypeVar("R", bound=BaseModel)
W = TypeVar("W", Path, SparkWorkspace)


class TaskOptions(Declaration):
    """The arguments of ``@task``."""

    written_as: ClassVar[str | None] = "@task"

    name: Annotated[
        str,
        Field(
            pattern=r"^\w([^/\\\p{C}]*[^\s/\\\p{C}])?$",
            max_length=200,
            description="text on one line without '/' and '\\', first a letter, digit or '_', "
            "such as 'songs.clean'",
        ),
    ]
    owner_email: Annotated[
        str,
        Field(
            pattern=r"\S",
            description="the address of the person or team responsible for the task, such as "
            "'data@example.com'",
        ),
    ]
    description: Annotated[str | None, Field(description="text")] = None
    workspace: Annotated[
        WorkspaceSpec | None, Field(description="a WorkspaceSpec(…), or None for no workspace")
    ] = None
    controls: Annotated[TaskControls | None, Field(description="a TaskControls(…)")] = None
    strict_params: Annotated[bool, Field(description="True or False")] = False


class Task(Generic[Args, P, R]):
    """A declared task. Calling it only calls the body, so a unit test needs no runtime.

    ``engine`` is the name of the engine that gives the body its data; None without a workspace.
    """

    def __init__(
        self, body: Callable[Args, R], options: TaskOptions, signature: BodySignature
    ) -> None:
        self.name = options.name
        self.owner_email = options.owner_email
        self.workspace = options.workspace
        self.controls = options.controls or TaskControls()
        self.strict_params = options.strict_params
        self.params_model = cast("type[P]", signature.params)
        self.result_model = cast("type[R]", signature.result)
        self.engine = signature.engine
        self.body = body
        self.__name__: str
        self.__qualname__: str
        update_wrapper(self, body)
        self.description = options.description or _first_line(body.__doc__)

    def __call__(self, *args: Args.args, **kwargs: Args.kwargs) -> R:
        """Call the body, without guardrails or publication."""
        return self.body(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.name!r} at {self.location}>"

    @property
    def module(self) -> str:
        """The name of the module that declares the task."""
        return self.body.__module__

    @property
    def is_local(self) -> bool:
        """Whether it is declared inside a function, where no worker process can find it."""
        return "<locals>" in self.__qualname__

    @property
    def location(self) -> Location:
        """The file and line of the body."""
        return location_of(self.body)

    def parse_params(self, raw: object) -> P:
        """The params of a delivery as the declared model. Raises TaskInputError."""
        return wire_json.parse_params(
            self.params_model, raw, task_name=self.name, strict=self.strict_params
        )

    def dump_result(self, value: object) -> dict[str, object]:
        """The body's return value as JSON. Raises TaskResultError."""
        return wire_json.dump_result(self.result_model, value, task_name=self.name)

    def with_params(self, **values: object) -> Step[R]:
        """This task as a pipeline step with these params, each a value or a result field."""
        return step_of(self, values)

    @property
    def result(self) -> R:
        """The task's future result: a field of it can be a later step's param.

        Typed as the result itself, so that a type checker knows its fields.
        """
        written = f"{self.__name__}.result"
        return cast("R", ResultFields(ResultReference(self, (), self.result_model, written)))


AnyTask: TypeAlias = Task[..., Any, Any]
"""A task of any models."""


class WorkspaceTaskDecorator(Protocol):
    """``@task(…)`` with a workspace, applied to a body."""

    def __call__(self, body: Callable[[W, P], R], /) -> Task[[W, P], P, R]:
        """Check the body's signature and register the task."""
        ...


class PlainTaskDecorator(Protocol):
    """``@task(…)`` without a workspace, applied to a body."""

    def __call__(self, body: Callable[[P], R], /) -> Task[[P], P, R]:
        """Check the body's signature and register the task."""
        ...


@overload
def task(
    *,
    name: str,
    owner_email: str,
    workspace: WorkspaceSpec,
    description: str | None = None,
    controls: TaskControls | None = None,
    strict_params: bool = False,
) -> WorkspaceTaskDecorator: ...


@overload
def task(
    *,
    name: str,
    owner_email: str,
    workspace: None = None,
    description: str | None = None,
    controls: TaskControls | None = None,
    strict_params: bool = False,
) -> PlainTaskDecorator: ...


def task(*positional: object, **declared: Any) -> Any:
    """Declare a function as a task.

    With ``workspace`` the body is ``(workspace: Path, params: P) -> R``, or takes a
    ``SparkWorkspace`` instead of the ``Path``. Without it the body is ``(params: P) -> R``. P and R
    are pydantic models. ``description`` defaults to the docstring's first line. ``strict_params``
    refuses unknown params at every level. Raises TaskDefinitionError for any other signature, a
    wrong argument, and a name that another task has.
    """
    if positional:
        raise TaskDefinitionError(
            "@task takes keyword arguments only",
            fix="write @task(name='…', owner_email='…') above the def",
        )
    options = TaskOptions(**declared)

    def declare(body: Callable[..., Any]) -> AnyTask:
        signature = read_signature(
            body,
            task_name=options.name,
            with_workspace=options.workspace is not None,
            scope=sys._getframe(1).f_locals,  # noqa: SLF001 - annotations of nested functions
        )
        new: AnyTask = Task(body, options, signature)
        _refuse_tables_without_spark(new)
        _refuse_wildcards_with_spark(new)
        return _register(new)

    return declare


def by_name(tasks: Iterable[AnyTask]) -> dict[str, AnyTask]:
    """The tasks by name, each once. Raises TaskDefinitionError if two of them share a name."""
    named: dict[str, AnyTask] = {}
    for each in tasks:
        if named.setdefault(each.name, each) is not each:
            raise _declared_twice(each, named[each.name])
    return named


_declared: dict[str, AnyTask] = {}


def declared_task(name: str) -> AnyTask | None:
    """The task last declared under this name in this process."""
    return _declared.get(name)


def _refuse_tables_without_spark(new: AnyTask) -> None:
    if new.workspace and new.workspace.tables and new.engine != "spark":
        first, *_ = inspect.signature(new.body).parameters
        raise TaskDefinitionError(
            f"{new.location}: task {new.name!r}: {new.workspace.tables[0].label} needs Spark, and "
            "the body works on local files",
            fix=f"give the body a SparkWorkspace: def {new.__name__}({first}: SparkWorkspace, …)",
        )


def _refuse_wildcards_with_spark(new: AnyTask) -> None:
    """Spark expands wildcards in a path, and would read other prefixes as well."""
    prefix = new.workspace.prefix if new.workspace else ""
    if new.engine == "spark" and (found := SPARK_WILDCARD.search(prefix)):
        raise TaskDefinitionError(
            f"{new.location}: task {new.name!r}: prefix {prefix!r} has a wildcard ({found[0]!r}), "
            "and Spark would read other prefixes too",
            fix=f"rename the directory, and write prefix={SPARK_WILDCARD.sub('_', prefix)!r}",
        )


def _register(new: AnyTask) -> AnyTask:
    """Remember the task by name. Another function of that name is refused; a re-import replaces.

    Tasks inside functions, as in tests, may share a name until one module or pipeline has both.
    """
    known = _declared.get(new.name)
    if known is None or _gives_way(known, new):
        _declared[new.name] = new
    elif not new.is_local:
        raise _declared_twice(new, known)
    return new


def _gives_way(known: AnyTask, new: AnyTask) -> bool:
    # The tasks of a module that was dropped, or whose import failed, are gone.
    gone = known.module not in sys.modules
    again = (known.module, known.__qualname__) == (new.module, new.__qualname__)
    return gone or again or known.is_local


def _declared_twice(new: AnyTask, known: AnyTask) -> TaskDefinitionError:
    return TaskDefinitionError(
        f"{new.location}: task {new.name!r} is declared twice: the other one is "
        f"{known.module}.{known.__qualname__} at {known.location}",
        fix=f"give one of them another name, such as name={f'{new.name}_2'!r}",
    )


def _first_line(docstring: str | None) -> str | None:
    return docstring.strip().partition("\n")[0] or None if docstring else None
