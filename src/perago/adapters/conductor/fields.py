"""Fields of what Conductor sends, by name and type: a missing one is told as what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from perago.errors import OrchestratorError

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

_SHOWN = 80


def document(raw: object, what: str) -> Mapping[str, Any]:
    """A JSON object. Raises OrchestratorError, as do all of these."""
    if not isinstance(raw, dict):
        raise OrchestratorError(f"Conductor sent {raw!r:.{_SHOWN}} where {what} belongs")
    return raw


def documents(raw: object, what: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects."""
    if not isinstance(raw, list):
        raise OrchestratorError(f"Conductor sent {raw!r:.{_SHOWN}} where a list belongs: {what}")
    return [document(one, what) for one in raw]


def required(raw: Mapping[str, Any], name: str, kind: type[T], what: str) -> T:
    """The field, which has to be there."""
    value = raw.get(name)
    if not isinstance(value, kind):
        raise OrchestratorError(
            f"Conductor sent {what} whose {name} is {value!r:.{_SHOWN}}, not a {kind.__name__}"
        )
    return value


def optional(raw: Mapping[str, Any], name: str, kind: type[T], what: str) -> T | None:
    """The field; None if it isn't there, or null."""
    return None if raw.get(name) is None else required(raw, name, kind, what)


def seconds(raw: Mapping[str, Any], name: str, what: str) -> float | None:
    """A time that Conductor gives in milliseconds, 0 for one that hasn't come."""
    milliseconds = optional(raw, name, int, what)
    return milliseconds / 1000 if milliseconds else None
