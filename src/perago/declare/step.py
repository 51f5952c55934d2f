"""A step of a pipeline: a task with params, which may refer to results of earlier steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from perago.declare.signature import type_name
from perago.declare.wire_json import as_json, params_errors, wire_fields, wire_name
from perago.errors import TaskDefinitionError
from perago.model.declaration import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.declare.task import Task


R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True, eq=False)
class Step(Generic[R]):
    """A task and some of its params: JSON values, and references to earlier results.

    Compared by identity: two equal calls of ``with_params`` are two steps.
    """

    task: Task[..., Any, R]
    params: Mapping[str, object]

    @property
    def result(self) -> R:
        """This step's future result: a field of it can be a later step's param.

        Typed as the result itself, so that a type checker knows its fields.
        """
        task = self.task
        written = f"{task.__name__}.with_params(…).result"
        return cast("R", ResultFields(ResultReference(self, (), task.result_model, written)))


def step_of(task: Task[..., Any, R], values: Mapping[str, object]) -> Step[R]:
    """A step with these params. Values that are known now are validated.

    Raises TaskDefinitionError for a field that the params model doesn't have, and for a value that
    it refuses.
    """
    model = task.params_model
    params = {wire_name(model, name): _value(task, name, value) for name, value in values.items()}
    known = wire_fields(model)
    for name, value in params.items():
        if name not in known:
            raise TaskDefinitionError(
                f"task {task.name!r}: {model.__name__} has no field {name!r}",
                fix=did_you_mean(name, known),
            )
        if isinstance(value, ResultReference) and not can_feed(
            known[name].annotation, value.annotation
        ):
            raise TaskDefinitionError(
                f"task {task.name!r}: {name} can't be {value.written}: a "
                f"{type_name(value.annotation)} never fits {type_name(known[name].annotation)}",
                fix=f"change the type of {model.__name__}.{name}, or refer to another result field",
            )
    _refuse_bad_literals(task, params)
    return Step(task, params)


def _value(task: Task[..., Any, Any], name: str, value: object) -> object:
    if reference := reference_in(value):
        return reference
    try:
        return as_json(value)
    except ValueError as error:
        raise TaskDefinitionError(
            f"task {task.name!r}: {name} is {shown(value)}, which isn't JSON: {error}",
            fix=f"give {name} a number, text, a list, a dict, a model, or a result field by itself",
        ) from None


def _refuse_bad_literals(task: Task[..., Any, Any], params: Mapping[str, object]) -> None:
    model = task.params_model
    literals = {k: v for k, v in params.items() if not isinstance(v, ResultReference)}
    pending = frozenset(wire_fields(model)) - literals.keys()
    errors = params_errors(model, literals, pending=pending, strict=task.strict_params)
    if errors:
        raise TaskDefinitionError(
            f"task {task.name!r}: {model.__name__}.{errors[0]}",
            fix=f"correct {errors[0].path} in {task.__name__}.with_params(…)",
        )


# --- References to results ------------------------------------------------------------------------

_SAMPLES: dict[object, object] = {int: 1, float: 1.0, bool: True, list: [], dict: {}}


@dataclass(frozen=True, slots=True, eq=False)
class ResultReference:
    """A field of the result of ``source``. ``path`` has wire names; empty for the whole result.

    ``written`` is how the user wrote it: ``ingest.result.rows``.
    """

    source: Task[..., Any, Any] | Step[Any]
    path: tuple[str, ...]
    annotation: Any
    written: str


class ResultFields:
    """A future result; each attribute is a reference to the field of that name.

    Its own state has a name that no pydantic field can have.
    """

    __slots__ = ("_reference",)

    def __init__(self, reference: ResultReference) -> None:
        self._reference = reference

    def __getattr__(self, name: str) -> ResultFields:
        if name.startswith("_"):
            raise AttributeError(name)
        return ResultFields(_field_of(self._reference, name))

    def __repr__(self) -> str:
        return self._reference.written


def reference_in(value: object) -> ResultReference | None:
    """The reference in a params value; None for a value that is known already."""
    if not isinstance(value, ResultFields):
        return None
    return value._reference  # noqa: SLF001 - every public name is a field


def can_feed(target: Any, source: Any) -> bool:
    """False only if no value of type ``source`` can be valid as ``target``."""
    sample = _sample(source)
    if target == source or sample is None:
        return True
    try:
        TypeAdapter(target).validate_python(sample)
    except ValidationError as error:
        return not any(
            detail["loc"] == () and detail["type"].endswith("_type")
            for detail in error.errors(include_url=False)
        )
    except PydanticUserError:
        return True
    return True


def _field_of(reference: ResultReference, name: str) -> ResultReference:
    model = reference.annotation
    if not _is_model(model):
        raise TaskDefinitionError(
            f"{reference.written} is of type {type_name(model)}, which has no field {name!r}",
            fix=f"use {reference.written} itself",
        )
    if name not in model.model_fields:
        raise TaskDefinitionError(
            f"{reference.written} is of type {model.__name__}, which has no field {name!r}",
            fix=did_you_mean(name, model.model_fields),
        )
    field = model.model_fields[name]
    wire = next(w for w, f in wire_fields(model, "serialization").items() if f is field)
    return ResultReference(
        reference.source, (*reference.path, wire), field.annotation, f"{reference.written}.{name}"
    )


def _sample(source: Any) -> object | None:
    if _is_model(source):
        return {}
    return _SAMPLES.get(getattr(source, "__origin__", source))


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
