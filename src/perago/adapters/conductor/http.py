"""Keep-alive connections to one server, for any number of threads."""

from __future__ import annotations

import http.client
import select
import threading
from http.client import BadStatusLine, IncompleteRead, LineTooLong, RemoteDisconnected
from typing import TYPE_CHECKING, BinaryIO, cast
from urllib.parse import urlsplit

from perago.adapters.conductor.responses import Answer
from perago.errors import OrchestratorUnavailableError

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Mapping

    from perago.adapters.conductor.client import ConductorConfig
    from perago.adapters.conductor.responses import Request


# --- A response as :mod:`http.client` reads one, but for its headers: only those few that ---
_LONGEST_LINE = 65_536
_MOST_HEADERS = 100
_NO_BODY = (204, 304)
_FIRST_FINAL_STATUS = 200
_FORGETFUL = b"HTTP/1.0"


class Response:
    """What :attr:`http.client.HTTPConnection.response_class` has to be, for GET, POST and PUT."""

    def __init__(
        self,
        sock: socket.socket,
        debuglevel: int = 0,  # noqa: ARG002 - what every response class is given
        method: str | None = None,  # noqa: ARG002
        url: str | None = None,  # noqa: ARG002
    ) -> None:
        self._stream: BinaryIO = sock.makefile("rb")
        self._headers: dict[bytes, str] = {}
        self.status = 0
        self.will_close = True

    def begin(self) -> None:
        """Read up to the body. Raises HTTPException or OSError."""
        version = _FORGETFUL
        while self.status < _FIRST_FINAL_STATUS:  # what comes before it is mere politeness
            version, self.status = self._read_status()
            self._headers = self._read_headers()
        wish = self.header("connection").lower()
        self.will_close = wish == "close" or (version == _FORGETFUL and wish != "keep-alive")

    def header(self, name: str) -> str:
        """Its value, "" if it isn't there; ``name`` in lower case."""
        return self._headers.get(name.encode(), "")

    def read(self) -> bytes:
        """All of the body. Raises IncompleteRead if the server went away in it."""
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
            raise RemoteDisconnected("the server closed the connection without an answer")
        version, _, rest = line.partition(b" ")
        if not version.startswith(b"HTTP/1."):
            raise BadStatusLine(line.decode("latin-1"))
        return version, _number(rest[:3], 10)

    def _read_headers(self) -> dict[bytes, str]:
        headers: dict[bytes, str] = {}
        while line := self._read_line().rstrip(b"\r\n"):
            name, _, value = line.partition(b":")
            headers[name.lower()] = value.strip().decode("latin-1")
            if len(headers) > _MOST_HEADERS:
                raise BadStatusLine(f"more than {_MOST_HEADERS} headers")
        return headers

    def _read_chunk(self) -> bytes:
        size = _number(self._read_line().partition(b";")[0], 16)
        if size == 0:
            self._read_headers()  # the trailer, most often just an empty line
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
        line = self._stream.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
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


class Connections:
    """As many as are asked with at one time; each is used again, by whoever asks next."""

    def __init__(self, config: ConductorConfig) -> None:
        self._config = config
        parts = urlsplit(config.address)
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
            connection.sock.settimeout(request.timeout or self._config.timeouts.answer)
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
        seconds = self._config.timeouts.connect
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

            self._tls = ssl.create_default_context(cafile=self._config.ca_file)
        return self._tls

    def _unanswered(self, request: Request, error: Exception) -> OrchestratorUnavailableError:
        fix = "see whether it is up, or correct CONDUCTOR_SERVER_URL"
        if type(error).__name__ == "SSLCertVerificationError":
            fix = "name the certificate of the server's authority by PERAGO_CONDUCTOR_CA_FILE"
        why = f"{type(error).__name__}: {error}".rstrip(": ")
        return OrchestratorUnavailableError(
            f"{request.doing}: no answer from Conductor at {self._config.address}: {why}", fix=fix
        )


def _was_given_up(connection: http.client.HTTPConnection) -> bool:
    """Whether an idle connection has something to read: it can only be the server's good-bye."""
    waiting = select.poll()
    waiting.register(connection.sock, select.POLLIN)
    return bool(waiting.poll(0))
