"""What pydantic found wrong, as values that name the field, the value and what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_REPR_LIMIT = 80


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
