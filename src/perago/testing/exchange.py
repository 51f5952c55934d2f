"""One request and its answer on their way through a wire, and what can be done to them there."""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from perago.testing.framing import Head, answer_body, lasts_until_close, read_head, request_body

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedIOBase
    from socketserver import StreamRequestHandler

_RESET = struct.pack("ii", 1, 0)  # close without the polite part: whoever reads gets an error
_INFORMATIONAL = range(100, 200)


class Passed(NamedTuple):
    """A request as a client sent it; ``path`` has its query."""

    method: str
    path: str


class Cut(Exception):
    """Both connections of an exchange are gone."""


@dataclass
class Answer:
    """What the server said. The body is still on its way until it is read or passed on."""

    head: Head
    body: Iterable[bytes] = field(repr=False)
    ends_connection: bool = False

    def keep(self) -> Answer:
        """Wait for all of it."""
        self.body = list(self.body)
        return self


class Upstream:
    """A connection to the server that is made when it is needed, and again when it was closed."""

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._open: tuple[socket.socket, BufferedIOBase] | None = None

    def ready(self) -> tuple[socket.socket, BufferedIOBase]:
        """To send to, and to read from. Raises OSError."""
        if self._open is not None and select.select([self._open[0]], [], [], 0)[0]:
            self.close()  # nothing was asked, so it can only be the server's good-bye
        if self._open is None:
            made = self._connect()
            self._open = made, made.makefile("rb")
        return self._open

    def close(self) -> None:
        if self._open is not None:
            connection, source = self._open
            self._open = None
            source.close()
            connection.close()


class Exchange:
    """One request on its way, for a fault to deal with."""

    def __init__(
        self, head: Head, client: StreamRequestHandler, upstream: Upstream, closing: threading.Event
    ) -> None:
        method, path, _ = head.first_line.split(" ", 2)
        self.request = Passed(method, path)
        self.is_last = head.ends_connection
        self._head = head.lacking("Expect")  # we say ourselves that the body may come
        self._client = client
        self._upstream = upstream
        self._closing = closing
        self._body: Iterable[bytes] = self._coming(head)

    def _coming(self, head: Head) -> Iterator[bytes]:
        if head.get("Expect"):
            self._client.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        yield from request_body(self._client.rfile, head)

    def keep_body(self) -> None:
        """Wait for all of the request, so that it can be sent more than once."""
        self._body = list(self._body)

    def forward(self) -> Answer:
        """Send the request; the server's answer. Ends the exchange if the server doesn't answer."""
        try:
            connection, source = self._upstream.ready()
            connection.sendall(self._head.encoded())
            for piece in self._body:
                # A server may answer before it has read everything, and read no further.
                with suppress(BrokenPipeError, ConnectionResetError):
                    connection.sendall(piece)
            head = read_head(source)
            while head is not None and head.status in _INFORMATIONAL:
                head = read_head(source)
        except OSError:
            self.cut()
        if head is None:
            self.cut()
        method = self.request.method
        until_close = lasts_until_close(head, method)
        return Answer(head, answer_body(source, head, method), until_close or head.ends_connection)

    def forward_part(self, body_bytes: int) -> None:
        """Send only so much of the request's body, then leave the server waiting for nothing."""
        connection, _ = self._upstream.ready()
        connection.sendall(self._head.encoded())
        for piece in _first(self._body, body_bytes):
            connection.sendall(piece)
        self._upstream.close()

    def reply(self, answer: Answer) -> None:
        """Pass an answer on to the client."""
        self._client.wfile.write(answer.head.encoded())
        for piece in answer.body:
            self._client.wfile.write(piece)
        if answer.ends_connection:
            self.is_last = True

    def reply_part(self, answer: Answer, body_bytes: int) -> NoReturn:
        """Pass only so much of the answer's body on, and end the connection there."""
        part = _first(answer.body, body_bytes)
        self._client.wfile.write(answer.head.encoded())
        for piece in part:
            self._client.wfile.write(piece)
        self._upstream.close()
        self._client.connection.shutdown(socket.SHUT_RDWR)
        raise Cut

    def wait(self, seconds: float) -> None:
        """Let time pass, though not longer than the wire is there."""
        self._closing.wait(seconds)

    def cut(self) -> NoReturn:
        """End both connections without a word."""
        self._upstream.close()
        self._client.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        raise Cut


def _first(pieces: Iterable[bytes], count: int) -> Iterator[bytes]:
    for piece in pieces:
        if count <= 0:
            return
        yield piece[:count]
        count -= len(piece)
