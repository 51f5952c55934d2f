"""Conductor's HTTP API: JSON in and out, with a token where the server wants one."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.http import Connections
from perago.adapters.conductor.responses import (
    Request,
    api_path,
    decode_json,
    encode_json,
    error_for,
)
from perago.errors import (
    OrchestratorAccessError,
    OrchestratorRefusedError,
    OrchestratorUnavailableError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from perago.adapters.conductor.responses import Answer
    from perago.errors import OrchestratorError


# --- Where a Conductor is, who we are there, and how long we wait for it ---


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: until there is a connection, and for how long the server may then be silent."""

    connect: float = 5.0
    answer: float = 30.0


@dataclass(frozen=True, slots=True)
class ConductorConfig:
    """``address`` is that of the API: ``http://HOST:PORT/api``.

    ``key`` and ``secret`` are for a server that asks for them. ``ca_file`` holds the certificates
    of an authority to believe, which the machine may not know.
    """

    address: str
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeouts: Timeouts = Timeouts()


_HEADERS = {"Accept": "application/json, text/plain", "Content-Type": "application/json"}
_TOKEN_HEADER = "X-Authorization"  # noqa: S105 - a name, no secret


class ConductorClient:
    """For any number of threads. Every method may raise what :mod:`.answers` has for an answer."""

    def __init__(self, config: ConductorConfig) -> None:
        self._config = config
        self._connections = Connections(config)
        self._guard = threading.Lock()
        self._token: str | None = None

    def close(self) -> None:
        self._connections.close()

    def read(
        self,
        path: str,
        *,
        doing: str,
        not_found: type[OrchestratorError] = OrchestratorRefusedError,
        repeatable: bool = True,
    ) -> Any:
        """Get JSON. Reading again does no harm, unless the caller says that it does."""
        request = Request(doing, path, not_found=not_found, repeatable=repeatable)
        return decode_json(self._granted(request), request, self._config.address)

    def find(self, path: str, *, doing: str, timeout: float | None = None) -> Any:
        """Get JSON; None if Conductor says that there is no such thing."""
        request = Request(doing, path, repeatable=True, timeout=timeout)
        answer = self._answered(request)
        if answer.is_not_found:
            return None
        return decode_json(self._checked(answer, request), request, self._config.address)

    def version(self) -> Answer:
        """Ask for the server's version, which is text; whatever it says to that, and when."""
        return self._granted(
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
        """Have something changed, asking once; what Conductor says to it, as text."""
        content = None if body is None else encode_json(body)
        answer = self._granted(Request(doing, path, method, content, not_found, timeout=timeout))
        return answer.body.decode(errors="replace").strip()

    def _granted(self, request: Request) -> Answer:
        return self._checked(self._answered(request), request)

    def _checked(self, answer: Answer, request: Request) -> Answer:
        problem = error_for(answer, request, self._config.address)
        if problem is not None:
            raise problem
        return answer

    def _answered(self, request: Request) -> Answer:
        """The answer, with a new token asked for once if the one we have isn't good any more."""
        if self._config.key is None:
            return self._connections.exchange(request, _HEADERS)
        token = self._token_after(None)
        answer = self._exchange_as(token, request)
        if answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            answer = self._exchange_as(self._token_after(token), request)
        return answer

    def _exchange_as(self, token: str, request: Request) -> Answer:
        return self._connections.exchange(request, {**_HEADERS, _TOKEN_HEADER: token})

    def _token_after(self, spent: str | None) -> str:
        """A token that isn't the spent one; of several who need a new one, one goes and gets it."""
        with self._guard:
            if self._token is None or self._token == spent:
                self._token = self._new_token()
            return self._token

    def _new_token(self) -> str:
        """Ask for one. What is said to it isn't shown: it might repeat what we have sent."""
        login = {"keyId": self._config.key, "keySecret": self._config.secret}
        request = Request("getting a token", api_path("token"), "POST", encode_json(login))
        answer = self._connections.exchange(request, _HEADERS)
        if answer.is_retryable:
            raise OrchestratorUnavailableError(
                f"getting a token: Conductor at {self._config.address} answered {answer.status}",
                fix="see whether it is well, then try again",
            )
        if answer.status == HTTPStatus.NOT_FOUND:
            raise OrchestratorAccessError(
                f"Conductor at {self._config.address} hands out no tokens",
                fix="unset CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET if it asks for no key; "
                "else correct CONDUCTOR_SERVER_URL, which ends with /api",
            )
        token = _token_in(answer)
        if token is None:
            raise OrchestratorAccessError(
                f"Conductor at {self._config.address} gave no token for this key "
                f"(it answered {answer.status})",
                fix="check CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET",
            )
        return token


def _token_in(answer: Answer) -> str | None:
    if answer.status != HTTPStatus.OK:
        return None
    try:
        token = json.loads(answer.body)["token"]
    except (ValueError, TypeError, KeyError):
        return None
    return token if isinstance(token, str) and token else None
