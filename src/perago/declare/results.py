"""References to result fields: ``ingest.result.rows`` stands for a number not yet known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from perago.declare.contract import wire_fields
from perago.errors import TaskDefinitionError
from perago.model.field_errors import did_you_mean

if TYPE_CHECKING:
    from perago.declare.step import Step
    from perago.declare.task import Task

_SAMPLES: dict[object, object] = {int: 1, float: 1.0, bool: True, list: [], dict: {}}


@dataclass(frozen=True, slots=True, eq=False)
class ResultReference:
    """A field of what ``source`` will return; ``path`` in wire names, empty for all of it."""

    source: Task[..., Any, Any] | Step[Any]
    path: tuple[str, ...]
    annotation: Any
    written: str


class ResultFields:
    """A result model's fields as attributes, each of which is a reference.

    Its own state hides behind a name no pydantic field can have.
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
    """The reference a params value is; None for a value that is known already."""
    if not isinstance(value, ResultFields):
        return None
    return value._reference  # noqa: SLF001 - the one way out, so that fields keep all public names


def can_feed(target: Any, source: Any) -> bool:
    """False only if no value of the source's type can validate as the target's."""
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
            f"{reference.written} is a {model!r} and has no field {name!r}",
            fix=f"use {reference.written} itself",
        )
    if name not in model.model_fields:
        raise TaskDefinitionError(
            f"{model.__name__}, which {reference.written} stands for, has no field {name!r}",
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
