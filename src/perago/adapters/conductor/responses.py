"""What is asked of Conductor and what its answers mean: pure translation into our own errors.

A status below 500 is a definite no. Anything else, or no answer at all, is told as unavailable:
whoever changes something asks afterwards what became of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from perago.errors import (
    OrchestratorAccessError,
    OrchestratorError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


_NOT_NOW = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_NO_SUCH_PATH = "No static resource"  # Conductor's 404 for what isn't in its API at all
_MESSAGE_LIMIT = 400
_SHOWN_VALUE = 80


@dataclass(frozen=True, slots=True)
class Request:
    """One request below the API's address; ``doing`` is what it is for, in an error's words.

    ``not_found`` is what Conductor's own "there is no such thing" is told as. One that is
    ``repeatable`` does no harm if it arrives twice. An answer that isn't there ``within`` so many
    seconds isn't waited for; without, as long as for any.
    """

    doing: str
    path: str
    method: str = "GET"
    body: bytes | None = None
    not_found: type[OrchestratorError] = OrchestratorRefusedError
    repeatable: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """``date`` is the time that the server has, in HTTP's form; empty if it doesn't say."""

    status: int
    content_type: str
    body: bytes
    date: str = ""

    @property
    def is_retryable(self) -> bool:
        """Whether asking again may help: no telling what became of the request."""
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR or self.status in _NOT_NOW

    @property
    def is_html(self) -> bool:
        """Whether it is something to look at: nothing in the API answers so."""
        return self.content_type.startswith("text/html")

    @property
    def is_not_found(self) -> bool:
        """Whether Conductor itself says that there is no such thing."""
        if self.status != HTTPStatus.NOT_FOUND:
            return False
        message = _said(self.body).get("message")
        return isinstance(message, str) and not message.startswith(_NO_SUCH_PATH)


def api_path(*segments: str, **query: object) -> str:
    """A path below the API's address, whatever characters its parts have."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    return f"/{path}?{urlencode(query)}" if query else f"/{path}"


def encode_json(value: object) -> bytes:
    """JSON as it is sent. Half a character, which no text has, becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def decode_json(answer: Answer, request: Request, address: str) -> Any:
    """The JSON of an answer, None for an empty one.

    Raises OrchestratorUnavailableError if it isn't JSON: part of it got lost.
    """
    if not answer.body:
        return None
    try:
        return json.loads(answer.body)
    except ValueError:
        raise OrchestratorUnavailableError(
            f"{request.doing}: Conductor at {address} answered with something that is no JSON: "
            f"{_shown(answer)}"
        ) from None


def error_for(answer: Answer, request: Request, address: str) -> OrchestratorError | None:
    """The error that an answer stands for; None if the request was granted."""
    status = answer.status
    if answer.is_retryable:
        return OrchestratorUnavailableError(
            f"{request.doing}: Conductor at {address} answered {status}: {message_of(answer.body)}",
            fix="see whether it is well, then try again",
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return OrchestratorAccessError(
            f"{request.doing}: Conductor at {address} refuses us ({status}): "
            f"{message_of(answer.body)}",
            fix="check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET, and what that key may do",
        )
    if answer.is_not_found:
        return request.not_found(f"{request.doing}: {message_of(answer.body)}")
    granted = HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
    if granted and not answer.is_html:
        return None
    if granted or status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.NOT_FOUND:
        return OrchestratorRefusedError(
            f"{request.doing}: what answers at {address} isn't Conductor's API "
            f"({status}, {_shown(answer)})",
            fix="correct CONDUCTOR_SERVER_URL; it ends with /api",
        )
    return OrchestratorRefusedError(
        f"{request.doing}: Conductor refused ({status}): {message_of(answer.body)}"
    )


def message_of(body: bytes) -> str:
    """The server's own words, from the JSON it answers with or from whatever it sent instead."""
    said = _said(body)
    details = said.get("validationErrors")
    parts = [said, *(details if isinstance(details, list) else ())]
    words = [
        str(part["message"]) for part in parts if isinstance(part, dict) and part.get("message")
    ]
    text = " ".join("; ".join(words).split()) or " ".join(body.decode(errors="replace").split())
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[: _MESSAGE_LIMIT - 1]}…"


def _said(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(answer: Answer) -> str:
    start = answer.body[:_SHOWN_VALUE].decode(errors="replace")
    return f"{answer.content_type or 'of no type'}: {start!r}"


# --- Fields of what Conductor sends, by name and type: a missing one is told as what it is ---
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
