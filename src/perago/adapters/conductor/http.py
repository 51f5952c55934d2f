"""HTTP to Conductor: requests, responses, and keep-alive connections for any number of threads.

Headers are parsed here, not by :mod:`http.client`, whose e-mail parser doubles the processor time
of an exchange (measured in decision 16).
"""

from __future__ import annotations

import http.client
import select
import threading
from dataclasses import dataclass
from http.client import BadStatusLine, IncompleteRead, LineTooLong, RemoteDisconnected
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import quote, urlencode, urlsplit

from perago.errors import OrchestratorError, OrchestratorRefusedError, OrchestratorUnavailableError

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, and then for the server's next bytes."""

    connect: float = 5.0
    answer: float = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``path`` is relative to the API's address.

    ``doing`` describes its purpose in error messages. ``not_found`` is the error for Conductor's
    own 404. A ``repeatable`` request does no harm if it arrives twice. ``timeout`` replaces
    :attr:`Timeouts.answer`.
    """

    doing: str
    path: str
    method: str = "GET"
    body: bytes | None = None
    not_found: type[OrchestratorError] = OrchestratorRefusedError
    repeatable: bool = False
    timeout: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. ``date`` is the Date header; empty if the server sends none."""

    status: int
    content_type: str
    body: bytes
    date: str = ""


def api_path(*segments: str, **query: object) -> str:
    """A path relative to the API's address; segments and values may have any characters."""
    path = "/".join(quote(segment, safe="") for segment in segments)
    return f"/{path}?{urlencode(query)}" if query else f"/{path}"


class ConnectionPool:
    """Keep-alive connections to one server: as many as there are exchanges at the same time."""

    def __init__(self, address: str, *, ca_file: Path | None, timeouts: Timeouts) -> None:
        self._address = address
        self._ca_file = ca_file
        self._timeouts = timeouts
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port
        self._path = parts.path.rstrip("/")
        self._is_tls = parts.scheme == "https"
        self._lock = threading.Lock()
        self._tls: ssl.SSLContext | None = None
        self._idle: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        """Close the idle connections; the next exchange opens a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def exchange(self, request: Request, headers: Mapping[str, str]) -> Response:
        """Send the request once and read the whole response.

        A repeatable request is sent a second time if the server had closed the idle connection.
        Raises OrchestratorUnavailableError.
        """
        try:
            idle = self._idle_connection()
            if idle is not None:
                try:
                    return self._exchange(idle, request, headers)
                except (ConnectionError, RemoteDisconnected):
                    if not request.repeatable:
                        raise
            return self._exchange(self._new_connection(), request, headers)
        except (OSError, http.client.HTTPException) as error:
            raise self._no_response(request, error) from error

    def _exchange(
        self, connection: http.client.HTTPConnection, request: Request, headers: Mapping[str, str]
    ) -> Response:
        """One exchange; afterwards the connection is idle, or closed."""
        try:
            connection.sock.settimeout(request.timeout or self._timeouts.answer)
            connection.request(
                request.method, f"{self._path}{request.path}", body=request.body, headers=headers
            )
            reader = cast("ResponseReader", connection.getresponse())
            body = reader.read()
            if reader.will_close:
                connection.close()
        except BaseException:
            connection.close()
            raise
        if connection.sock is not None:
            with self._lock:
                self._idle.append(connection)
        return Response(reader.status, reader.header("content-type"), body, reader.header("date"))

    def _idle_connection(self) -> http.client.HTTPConnection | None:
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not _is_closed_by_server(connection):
                return connection
            connection.close()

    def _new_connection(self) -> http.client.HTTPConnection:
        seconds = self._timeouts.connect
        if self._is_tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=seconds, context=self._tls_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=seconds)
        connection.response_class = ResponseReader  # type: ignore[assignment]
        try:
            connection.connect()
        except BaseException:
            connection.close()
            raise
        return connection

    def _tls_context(self) -> ssl.SSLContext:
        if self._tls is None:
            import ssl

            self._tls = ssl.create_default_context(cafile=self._ca_file)
        return self._tls

    def _no_response(self, request: Request, error: Exception) -> OrchestratorUnavailableError:
        fix = "check that Conductor is running and that CONDUCTOR_SERVER_URL is right"
        if type(error).__name__ == "SSLCertVerificationError":
            fix = "set PERAGO_CONDUCTOR_CA_FILE to the certificate of the server's authority"
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return OrchestratorUnavailableError(
            f"{request.doing}: no response from Conductor at {self._address}: {why}", fix=fix
        )


def _is_closed_by_server(connection: http.client.HTTPConnection) -> bool:
    """An idle connection that has something to read was closed: nothing else comes unasked."""
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))


_MAX_LINE_BYTES = 65_536
_MAX_HEADERS = 100
_NO_BODY = (204, 304)
_FIRST_FINAL_STATUS = 200
_HTTP_1_0 = b"HTTP/1.0"


class ResponseReader:
    """A :attr:`http.client.HTTPConnection.response_class` for GET, POST, PUT and DELETE."""

    def __init__(
        self,
        sock: socket.socket,
        debuglevel: int = 0,  # noqa: ARG002 - HTTPConnection passes all of these
        method: str | None = None,  # noqa: ARG002
        url: str | None = None,  # noqa: ARG002
    ) -> None:
        self._stream: BinaryIO = sock.makefile("rb")
        self._headers: dict[bytes, str] = {}
        self.status = 0
        self.will_close = True

    def begin(self) -> None:
        """Read the status and the headers. Raises HTTPException or OSError."""
        version = _HTTP_1_0
        while self.status < _FIRST_FINAL_STATUS:  # skips "100 Continue" and the like
            version, self.status = self._read_status()
            self._headers = self._read_headers()
        option = self.header("connection").lower()
        self.will_close = option == "close" or (version == _HTTP_1_0 and option != "keep-alive")

    def header(self, name: str) -> str:
        """The value of a header, "" without one; ``name`` is in lower case."""
        return self._headers.get(name.encode(), "")

    def read(self) -> bytes:
        """Read the whole body. Raises IncompleteRead if the connection ends inside it."""
        if self.status in _NO_BODY:
            body = b""
        elif self.header("transfer-encoding").lower() == "chunked":
            body = b"".join(iter(self._read_chunk, b""))
        elif length := self.header("content-length"):
            body = self._read_exactly(_number(length.encode(), 10))
        else:
            self.will_close = True
            body = self._stream.read()
        self.close()
        return body

    def isclosed(self) -> bool:
        return self._stream.closed

    def close(self) -> None:
        self._stream.close()

    def _read_status(self) -> tuple[bytes, int]:
        line = self._read_line()
        if not line:
            raise RemoteDisconnected("the server closed the connection without a response")
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise BadStatusLine(line.decode("latin-1"))
        return version, _number(rest[:3], 10)

    def _read_headers(self) -> dict[bytes, str]:
        headers: dict[bytes, str] = {}
        while line := self._read_line().rstrip(b"\r\n"):
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip().decode("latin-1")
            if len(headers) > _MAX_HEADERS:
                raise BadStatusLine(f"more than {_MAX_HEADERS} headers")
        return headers

    def _read_chunk(self) -> bytes:
        size = _number(self._read_line().partition(b";")[0], 16)
        if size == 0:
            self._read_headers()  # the trailer, usually just an empty line
            return b""
        chunk = self._read_exactly(size)
        self._read_line()
        return chunk

    def _read_exactly(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise IncompleteRead(data, size - len(data))
        return data

    def _read_line(self) -> bytes:
        line = self._stream.readline(_MAX_LINE_BYTES + 1)
        if len(line) > _MAX_LINE_BYTES:
            raise LineTooLong("header line")
        return line


def _number(text: bytes, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise BadStatusLine(text.decode("latin-1"))
    return number
