"""The base of everything a user declares: frozen, keyword arguments only, nothing unknown."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from perago.errors import TaskDefinitionError
from perago.model.field_errors import FieldError, did_you_mean, field_errors, shown


class Declaration(BaseModel):
    """A frozen value that refuses to exist when it is wrong.

    Raises :class:`TaskDefinitionError` for the first mistake, naming the class, the field, the
    value and the fix. A field's ``description`` completes the sentence "give it …".
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    written_as: ClassVar[str | None] = None
    """What users write to make one, where that isn't the class's own name."""

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
        # A regular expression says less than the words the fix has for it.
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
