"""Keep-alive connections to one server, for any number of threads."""

from __future__ import annotations

import http.client
import select
import threading
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from perago.adapters.conductor.answers import Answer
from perago.adapters.conductor.responses import Response
from perago.errors import OrchestratorUnavailableError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from perago.adapters.conductor.access import ConductorAccess
    from perago.adapters.conductor.answers import Request


class Connections:
    """As many as are asked with at one time; each is used again, by whoever asks next."""

    def __init__(self, access: ConductorAccess) -> None:
        self._access = access
        parts = urlsplit(access.address)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._guard = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Let go of the server; asking again connects again."""
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def exchange(self, request: Request, headers: Mapping[str, str]) -> Answer:
        """Ask once, and wait for the whole answer.

        A repeatable request is sent a second time if the connection turns out to be one that the
        server gave up meanwhile. Raises OrchestratorUnavailableError.
        """
        try:
            kept = self._kept()
            if kept is not None:
                try:
                    return self._ask(kept, request, headers)
                except (ConnectionError, http.client.RemoteDisconnected):
                    if not request.repeatable:
                        raise
            return self._ask(self._opened(), request, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._unanswered(request, error) from error

    def _ask(
        self, connection: http.client.HTTPConnection, request: Request, headers: Mapping[str, str]
    ) -> Answer:
        """One exchange; the connection is kept for the next one if it is still good."""
        try:
            connection.sock.settimeout(request.within or self._access.timeouts.answer)
            connection.request(
                request.method, f"{self._path}{request.path}", body=request.body, headers=headers
            )
            response = cast("Response", connection.getresponse())
            body = response.read()
            if response.will_close:
                connection.close()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:  # closed already if the server said so
            with self._guard:
                self._idle.append(connection)
        content_type, date = response.header("content-type"), response.header("date")
        return Answer(response.status, content_type, body, date)

    def _kept(self) -> http.client.HTTPConnection | None:
        while True:
            with self._guard:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _was_given_up(connection):
                return connection
            connection.close()

    def _opened(self) -> http.client.HTTPConnection:
        seconds = self._access.timeouts.connect
        if self._is_tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=seconds, context=self._tls_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        connection.response_class = Response  # type: ignore[assignment]
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            import ssl

            self._tls = ssl.create_default_context(cafile=self._access.ca_file)
        return self._tls

    def _unanswered(self, request: Request, error: Exception) -> OrchestratorUnavailableError:
        fix = "see whether it is up, or correct CONDUCTOR_SERVER_URL"
        if type(error).__name__ == "SSLCertVerificationError":
            fix = "name the certificate of the server's authority by PERAGO_CONDUCTOR_CA_FILE"
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return OrchestratorUnavailableError(
            f"{request.doing}: no answer from Conductor at {self._access.address}: {why}", fix=fix
        )


def _was_given_up(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to read: it can only be the server's good-bye."""
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))
