"""What Conductor's responses mean: errors of our tree, and typed fields of the JSON. No I/O.

A status below 500 is a definite refusal. Any other failure is OrchestratorUnavailableError: the
server may have applied the request, so the caller reads the state back.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from perago.errors import (
    OrchestratorAccessError,
    OrchestratorError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.adapters.conductor.http import Request, Response

T = TypeVar("T")
_RETRYABLE = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_NO_SUCH_PATH = "No static resource"  # Conductor's 404 for a path that its API does not have
_MESSAGE_LIMIT = 400
_SHOWN = 80


def error_for(response: Response, request: Request, address: str) -> OrchestratorError | None:
    """The error that a response stands for; None if the request succeeded."""
    status = response.status
    if is_retryable(response):
        return OrchestratorUnavailableError(
            f"{request.doing}: Conductor at {address} returned {status}: "
            f"{message_of(response.body)}",
            fix="check the server's health, then retry",
        )
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return OrchestratorAccessError(
            f"{request.doing}: Conductor at {address} rejects our credentials ({status}): "
            f"{message_of(response.body)}",
            fix="check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET, and that key's permissions",
        )
    if is_not_found(response):
        return request.not_found(f"{request.doing}: {message_of(response.body)}")
    succeeded = HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES
    is_html = response.content_type.startswith("text/html")  # the API never sends any
    if succeeded and not is_html:
        return None
    if succeeded or status < HTTPStatus.BAD_REQUEST or status == HTTPStatus.NOT_FOUND:
        return OrchestratorRefusedError(
            f"{request.doing}: the server at {address} isn't Conductor's API "
            f"({status}, {_shown(response)})",
            fix="correct CONDUCTOR_SERVER_URL; it ends with /api",
        )
    return OrchestratorRefusedError(
        f"{request.doing}: Conductor refused ({status}): {message_of(response.body)}"
    )


def is_retryable(response: Response) -> bool:
    """Whether a retry may succeed; the server may have applied the request or not."""
    return response.status >= HTTPStatus.INTERNAL_SERVER_ERROR or response.status in _RETRYABLE


def is_not_found(response: Response) -> bool:
    """Whether Conductor itself says that there is no such thing, not some other server."""
    if response.status != HTTPStatus.NOT_FOUND:
        return False
    message = _json_object(response.body).get("message")
    return isinstance(message, str) and not message.startswith(_NO_SUCH_PATH)


def message_of(body: bytes) -> str:
    """The server's own message: from its JSON, or else the text of the body."""
    error = _json_object(body)
    details = error.get("validationErrors")
    parts = [error, *(details if isinstance(details, list) else ())]
    messages = [
        str(part["message"]) for part in parts if isinstance(part, dict) and part.get("message")
    ]
    text = " ".join("; ".join(messages).split()) or " ".join(body.decode(errors="replace").split())
    return text if len(text) <= _MESSAGE_LIMIT else f"{text[: _MESSAGE_LIMIT - 1]}…"


def _json_object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _shown(response: Response) -> str:
    start = response.body[:_SHOWN].decode(errors="replace")
    return f"{response.content_type or 'of no type'}: {start!r}"


# --- JSON -----------------------------------------------------------------------------------------


def encode_json(value: object) -> bytes:
    """JSON to send. An unpaired surrogate becomes a question mark."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode("utf-8", "replace")


def decode_json(response: Response, request: Request, address: str) -> Any:
    """The JSON of a response; None for an empty body.

    Raises OrchestratorUnavailableError if it is not JSON: a part of it got lost.
    """
    if not response.body:
        return None
    try:
        return json.loads(response.body)
    except ValueError:
        raise OrchestratorUnavailableError(
            f"{request.doing}: the response of Conductor at {address} is no JSON: "
            f"{_shown(response)}"
        ) from None


def document(raw: object, what: str) -> Mapping[str, Any]:
    """A JSON object; ``what`` names it in the error. Raises OrchestratorError, as do all below."""
    if not isinstance(raw, dict):
        raise OrchestratorError(f"Conductor sent {raw!r:.{_SHOWN}} instead of {what}")
    return raw


def documents(raw: object, what: str) -> list[Mapping[str, Any]]:
    """A list of JSON objects."""
    if not isinstance(raw, list):
        raise OrchestratorError(f"Conductor sent {raw!r:.{_SHOWN}} instead of a list of {what}")
    return [document(one, what) for one in raw]


def required(raw: Mapping[str, Any], name: str, kind: type[T], what: str) -> T:
    """A field that must be there, of type ``kind``."""
    value = raw.get(name)
    if not isinstance(value, kind):
        raise OrchestratorError(
            f"Conductor sent {what} whose {name} is {value!r:.{_SHOWN}}, not a {kind.__name__}"
        )
    return value


def optional(raw: Mapping[str, Any], name: str, kind: type[T], what: str) -> T | None:
    """A field of type ``kind``; None if it is missing or null."""
    return None if raw.get(name) is None else required(raw, name, kind, what)


def seconds(raw: Mapping[str, Any], name: str, what: str) -> float | None:
    """A time in seconds; None if it is missing or 0. Conductor sends milliseconds."""
    milliseconds = optional(raw, name, int, what)
    return milliseconds / 1000 if milliseconds else None
