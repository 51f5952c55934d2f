"""Conductor's HTTP API: JSON in and out, with a token if the server requires one."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.http import ConnectionPool, Request, Timeouts, api_path
from perago.adapters.conductor.responses import (
    decode_json,
    encode_json,
    error_for,
    is_not_found,
    is_retryable,
)
from perago.errors import (
    OrchestratorAccessError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from perago.adapters.conductor.http import Response
    from perago.errors import OrchestratorError

_HEADERS = {"Accept": "application/json, text/plain", "Content-Type": "application/json"}
_TOKEN_HEADER = "X-Authorization"  # noqa: S105 - a name, no secret


@dataclass(frozen=True, slots=True)
class ConductorConfig:
    """One Conductor server and our credentials there.

    ``address`` is that of the API: ``http://HOST:PORT/api``. ``key`` and ``secret`` are for a
    server that requires them. ``ca_file`` is a CA bundle used to verify the server.
    """

    address: str
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeouts: Timeouts = field(default_factory=Timeouts)


class ConductorClient:
    """For any number of threads. Every method raises the errors of :mod:`.responses`."""

    def __init__(self, config: ConductorConfig) -> None:
        self._config = config
        self._connections = ConnectionPool(
            config.address, ca_file=config.ca_file, timeouts=config.timeouts
        )
        self._lock = threading.Lock()
        self._token: str | None = None

    def close(self) -> None:
        """Close the connections; using the client again connects again."""
        self._connections.close()

    def read(
        self,
        path: str,
        *,
        doing: str,
        not_found: type[OrchestratorError] = OrchestratorRefusedError,
        repeatable: bool = True,
    ) -> Any:
        """GET a path and return its JSON. ``repeatable=False`` if a second GET does harm."""
        request = Request(doing, path, not_found=not_found, repeatable=repeatable)
        return decode_json(self._checked(request), request, self._config.address)

    def find(self, path: str, *, doing: str, timeout: float | None = None) -> Any:
        """GET a path and return its JSON; None if Conductor says that there is no such thing."""
        request = Request(doing, path, repeatable=True, timeout=timeout)
        response = self._authorized(request)
        if is_not_found(response):
            return None
        self._raise_if_failed(response, request)
        return decode_json(response, request, self._config.address)

    def version(self) -> Response:
        """The response to a request for the server's version; its body is plain text."""
        return self._checked(
            Request("asking for the version", api_path("version"), repeatable=True)
        )

    def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        doing: str,
        not_found: type[OrchestratorError] = OrchestratorRefusedError,
        timeout: float | None = None,
    ) -> str:
        """Send a change once, with ``body`` as JSON, and return the response's text."""
        content = None if body is None else encode_json(body)
        request = Request(doing, path, method, content, not_found, timeout=timeout)
        return self._checked(request).body.decode(errors="replace").strip()

    def _checked(self, request: Request) -> Response:
        response = self._authorized(request)
        self._raise_if_failed(response, request)
        return response

    def _raise_if_failed(self, response: Response, request: Request) -> None:
        error = error_for(response, request, self._config.address)
        if error is not None:
            raise error

    def _authorized(self, request: Request) -> Response:
        """The response; if the server rejects our token, it is renewed once."""
        if self._config.key is None:
            return self._connections.exchange(request, _HEADERS)
        token = self._token_other_than(None)
        response = self._exchange_with(token, request)
        if response.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            response = self._exchange_with(self._token_other_than(token), request)
        return response

    def _exchange_with(self, token: str, request: Request) -> Response:
        return self._connections.exchange(request, {**_HEADERS, _TOKEN_HEADER: token})

    def _token_other_than(self, rejected: str | None) -> str:
        """The current token; if several threads need a new one, only the first requests it."""
        with self._lock:
            if self._token is None or self._token == rejected:
                self._token = self._request_token()
            return self._token

    def _request_token(self) -> str:
        """Log in. Errors don't show the response: it might repeat the secret."""
        address = self._config.address
        login = {"keyId": self._config.key, "keySecret": self._config.secret}
        request = Request("getting a token", api_path("token"), "POST", encode_json(login))
        response = self._connections.exchange(request, _HEADERS)
        if is_retryable(response):
            raise OrchestratorUnavailableError(
                f"getting a token: Conductor at {address} returned {response.status}",
                fix="check the server's health, then retry",
            )
        if response.status == HTTPStatus.NOT_FOUND:
            raise OrchestratorAccessError(
                f"Conductor at {address} issues no tokens",
                fix="unset CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET if it requires no key; "
                "otherwise correct CONDUCTOR_SERVER_URL, which ends with /api",
            )
        token = _token_in(response)
        if token is None:
            raise OrchestratorAccessError(
                f"Conductor at {address} issued no token for this key (status {response.status})",
                fix="check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET",
            )
        return token


def _token_in(response: Response) -> str | None:
    if response.status != HTTPStatus.OK:
        return None
    try:
        token = json.loads(response.body)["token"]
    except (ValueError, TypeError, KeyError):
        return None
    return token if isinstance(token, str) and token else None
