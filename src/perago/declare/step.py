"""One place in a pipeline: a task with the params it gets there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pydantic import BaseModel

from perago.declare.contract import as_json, params_errors, wire_fields, wire_name
from perago.declare.results import ResultFields, ResultReference, can_feed, reference_in
from perago.errors import TaskDefinitionError
from perago.model.field_errors import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.declare.task import Task

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True, slots=True, eq=False)
class Step(Generic[R]):
    """A task and some of its params: JSON values, and references to earlier results.

    Compared by identity: the same task with the same params twice is two steps.
    """

    task: Task[..., Any, R]
    params: Mapping[str, object]

    @property
    def result(self) -> R:
        """What this very step will return; a field of it may be a later step's param.

        Typed as the result itself, so that a type checker knows its fields.
        """
        task = self.task
        written = f"{task.__name__}.with_params(…).result"
        return cast("R", ResultFields(ResultReference(self, (), task.result_model, written)))


def step_of(task: Task[..., Any, R], values: Mapping[str, object]) -> Step[R]:
    """A step with these params, checked as far as they are known.

    Raises TaskDefinitionError for a field the params model doesn't have and a value it refuses.
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
                f"task {task.name!r}: {name} can't take {value.written}: a "
                f"{_type_name(value.annotation)} never fits {_type_name(known[name].annotation)}",
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
            fix="give a number, text, a list, a dict, a model, or a result field by itself",
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


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)
