"""The base class of everything a user declares, and how its errors name the field and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from perago.errors import TaskDefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails


_REPR_LIMIT = 80


class Declaration(BaseModel):
    """A frozen value, made of known keyword arguments only.

    Raises :class:`TaskDefinitionError` for the first mistake, naming the class, the field, the
    value and the fix. A field's ``description`` completes the sentence "give it …".
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    written_as: ClassVar[str | None] = None
    """What users write to make one, if that isn't the class's name."""

    def __init__(self, /, *positional: object, **arguments: Any) -> None:
        if positional:
            raise self._refused_positional(positional)
        try:
            super().__init__(**arguments)
        except ValidationError as error:
            errors = field_errors(error, type(self))
            # A misspelt argument also leaves the right one missing: the spelling is the mistake.
            misspelt = [each for each in errors if each.is_unknown]
            raise self._refused((misspelt or errors)[0]) from None

    @classmethod
    def _refused_positional(cls, positional: tuple[object, ...]) -> TaskDefinitionError:
        named = zip(cls.model_fields, positional, strict=False)
        written = ", ".join(f"{name}={shown(value)}" for name, value in named)
        return TaskDefinitionError(
            f"{cls._noun()} takes keyword arguments only, and was given {shown(positional[0])}",
            fix=f"write {cls._noun()}({written})",
        )

    @classmethod
    def _refused(cls, error: FieldError) -> TaskDefinitionError:
        if error.is_unknown:
            return TaskDefinitionError(
                f"{cls._noun()} has no argument {error.field!r}",
                fix=did_you_mean(error.field, cls.model_fields),
            )
        if error.is_missing:
            return TaskDefinitionError(
                f"{cls._noun()} needs the argument {error.field!r}",
                fix=f"give {error.field} {cls._allowed(error.field)}",
            )
        # A regular expression says less than the description in the fix.
        why = "" if error.kind == "string_pattern_mismatch" else f": {error.expected}"
        return TaskDefinitionError(
            f"{cls._noun()}: {error.path} can't be {error.value}{why}",
            fix=f"give {error.field} {cls._allowed(error.field)}",
        )

    @classmethod
    def _noun(cls) -> str:
        return cls.written_as or cls.__name__

    @classmethod
    def _allowed(cls, name: str) -> str:
        """What a field takes, in words."""
        field = cls.model_fields[name]
        if get_origin(field.annotation) is Literal:
            words = f"one of {', '.join(repr(value) for value in get_args(field.annotation))}"
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            return f"a {field.annotation.__name__}(…)"
        else:
            words = field.description or str(field.annotation)
        return words if field.is_required() else f"{words} (default {field.default!r})"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One bad field. ``kind`` is pydantic's error type; ``value`` is a shortened repr."""

    field: str
    path: str
    value: str
    expected: str
    kind: str

    @property
    def is_unknown(self) -> bool:
        """Whether the model has no such field."""
        return self.kind == "extra_forbidden"

    @property
    def is_missing(self) -> bool:
        """Whether the field is required and wasn't given."""
        return self.kind == "missing"

    def __str__(self) -> str:
        if self.is_unknown:
            return f"{self.path}: unknown field"
        if self.is_missing:
            return f"{self.path}: missing"
        return f"{self.path} is {self.value}: {self.expected}"


def field_errors(error: ValidationError, model: type[BaseModel]) -> list[FieldError]:
    """Every error of a failed validation of ``model``, in the order pydantic found them.

    The value of a secret field is never shown.
    """
    secret = {
        name for name, field in model.model_fields.items() if "Secret" in str(field.annotation)
    }
    return [
        FieldError(
            field=str(detail["loc"][0]) if detail["loc"] else "",
            path=dotted(detail["loc"]),
            value="(hidden)" if secret.intersection(detail["loc"][:1]) else shown(detail["input"]),
            expected=_expectation(detail),
            kind=detail["type"],
        )
        for detail in error.errors(include_url=False)
    ]


def dotted(location: tuple[int | str, ...]) -> str:
    """A pydantic location the way a person writes it: ``songs[3].title``."""
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text or "(the whole value)"


def shown(value: object) -> str:
    """A repr short enough for a message."""
    text = repr(value)
    return text if len(text) <= _REPR_LIMIT else f"{text[: _REPR_LIMIT - 1]}…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known names, with the most likely one first: the fix for an unknown one."""
    names = sorted(known)
    listed = f"known: {', '.join(names)}" if names else "there are none"
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}? ({listed})" if close else listed


def _expectation(detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    message = detail["msg"]
    return message[:1].lower() + message[1:]
