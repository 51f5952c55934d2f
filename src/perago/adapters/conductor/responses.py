"""A response as :mod:`http.client` reads one, but for its headers: only those few that we need.

The standard library parses them as those of an e-mail, which takes longer than all the rest.
"""

from __future__ import annotations

from http.client import BadStatusLine, IncompleteRead, LineTooLong, RemoteDisconnected
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import socket

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
