"""Params and results as they cross the wire: JSON on one side, pydantic models on the other.

A field's wire name is its alias where it has one, as in the models' JSON schemas.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from perago.errors import TaskInputError, TaskResultError
from perago.model.declaration import FieldError, field_errors, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo


M = TypeVar("M", bound=BaseModel)


def parse_params(model: type[M], raw: object, *, task_name: str, strict: bool) -> M:
    """The params a delivery carries. ``strict`` refuses unknown fields at every level.

    Raises TaskInputError naming each bad field, its value and what was expected.
    """
    try:
        return _validate(model, raw, strict=strict)
    except ValidationError as error:
        errors = field_errors(error, model)
    except (TypeError, ValueError) as error:
        raise TaskInputError(
            f"task {task_name!r}: params aren't JSON: {error}", fix="send a JSON object"
        ) from None
    raise TaskInputError(
        f"task {task_name!r}: bad params: {'; '.join(map(str, errors))}",
        fix=f"send {model.__name__} with the fields: {', '.join(wire_fields(model)) or 'none'}",
    )


def params_errors(
    model: type[BaseModel], values: Mapping[str, object], *, pending: frozenset[str], strict: bool
) -> list[FieldError]:
    """The problems of params, some of which (``pending``) are only known later.

    While any is pending, the model's cross-field rules are not checked.
    """
    try:
        _validate(model, values, strict=strict)
    except ValidationError as error:
        return [
            found
            for found in field_errors(error, model)
            if found.field not in pending and (found.field or not pending)
        ]
    return []


def as_json(value: object) -> object:
    """A Python value as JSON. Raises ValueError if it can't be."""
    jsonable = to_jsonable_python(value)
    json.dumps(jsonable, allow_nan=False)
    return jsonable


def dump_result(model: type[BaseModel], value: object, *, task_name: str) -> dict[str, object]:
    """A body's result as JSON. Raises TaskResultError if it isn't of the declared model.

    A dict that would be valid is refused, too: the body's signature promises the model.
    """
    if not isinstance(value, model):
        raise TaskResultError(
            f"task {task_name!r} returned {shown(value)}, which is not a {model.__name__}",
            fix=f"end the body with return {model.__name__}(…)",
        )
    try:
        dumped: dict[str, object] = value.model_dump(mode="json", by_alias=True)
        json.dumps(dumped, allow_nan=False)
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise TaskResultError(
            f"task {task_name!r} returned a {model.__name__} that isn't JSON: {error}",
            fix="return finite numbers, text, lists and models; data belongs in files",
        ) from None
    return dumped


def wire_fields(
    model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation"
) -> dict[str, FieldInfo]:
    """The model's fields by wire name."""
    named = {}
    for name, field in model.model_fields.items():
        alias = field.validation_alias if mode == "validation" else field.serialization_alias
        named[alias if isinstance(alias, str) else name] = field
    return named


def wire_name(model: type[BaseModel], name: str) -> str:
    """The wire name of a params field, given by either of its names."""
    field = model.model_fields.get(name)
    return next((wire for wire, f in wire_fields(model).items() if f is field), name)


def _validate(model: type[M], raw: object, *, strict: bool) -> M:
    # Through JSON, as it arrives: a model with strict=True then still reads dates from text.
    extra: dict[str, Any] = {"extra": "forbid"} if strict else {}
    return model.model_validate_json(json.dumps(raw), **extra)
