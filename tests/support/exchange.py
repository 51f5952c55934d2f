"""HTTP/1.1 messages on a connection, and one exchange of them for a fault to act on.

A :class:`Head` and a body in pieces are passed on exactly as they came. :mod:`support.wire` hands
each :class:`Exchange` to a fault.
"""

from __future__ import annotations

import select
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, NoReturn

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator
    from io import BufferedIOBase
    from socketserver import StreamRequestHandler

_PIECE = 64 * 1024
_BODILESS = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_RESET = struct.pack("ii", 1, 0)  # close with a reset: the reader gets an error
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


# --- where messages begin and end -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Head:
    """A message without its body. Names and values go on exactly as they came."""

    first_line: str
    fields: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """A header's value, or nothing."""
        return next((v for n, v in self.fields if n.lower() == name.lower()), "")

    def having(self, name: str, value: str) -> Head:
        """The same with this header, instead of any of its name."""
        return Head(self.first_line, (*self.lacking(name).fields, (name, value)))

    def lacking(self, name: str) -> Head:
        kept = tuple(field for field in self.fields if field[0].lower() != name.lower())
        return Head(self.first_line, kept)

    def encoded(self) -> bytes:
        lines = [self.first_line, *(f"{name}: {value}" for name, value in self.fields)]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.get("Transfer-Encoding").lower()

    @property
    def ends_connection(self) -> bool:
        return "close" in self.get("Connection").lower() or "HTTP/1.0" in self.first_line

    @property
    def status(self) -> int:
        """An answer's status."""
        return int(self.first_line.split(" ", 2)[1])


def read_head(source: BufferedIOBase) -> Head | None:
    """The next message's head; None where the connection ends instead."""
    lines = []
    while (line := source.readline()) not in (b"\r\n", b"\n"):
        if not line.endswith(b"\n"):
            return None
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    if not lines:
        return None
    fields = (line.partition(":")[::2] for line in lines[1:])
    return Head(lines[0], tuple((name, value.strip()) for name, value in fields))


def request_body(source: BufferedIOBase, head: Head) -> Iterator[bytes]:
    """A request's body, framing included, in pieces as they come."""
    if head.is_chunked:
        return _chunks(source)
    return _sized(source, int(head.get("Content-Length") or 0))


def answer_body(source: BufferedIOBase, head: Head, method: str) -> Iterator[bytes]:
    """An answer's body, framing included, in pieces as they come."""
    if method == "HEAD" or head.status in _BODILESS:
        return iter(())
    if head.is_chunked:
        return _chunks(source)
    if lasts_until_close(head, method):
        return iter(lambda: source.read1(_PIECE), b"")
    return _sized(source, int(head.get("Content-Length")))


def lasts_until_close(head: Head, method: str) -> bool:
    """Whether this answer's body lasts until the connection ends."""
    has_body = method != "HEAD" and head.status not in _BODILESS
    return has_body and not head.is_chunked and not head.get("Content-Length")


def _sized(source: BufferedIOBase, length: int) -> Iterator[bytes]:
    while length:
        # What is there already, so that a body is passed on while it still comes.
        piece = source.read1(min(length, _PIECE))
        if not piece:
            raise ConnectionResetError(f"the connection ended {length} bytes too early")
        length -= len(piece)
        yield piece


def _chunks(source: BufferedIOBase) -> Iterator[bytes]:
    size = -1
    while size:
        line = _line(source)
        yield line
        size = int(line.split(b";")[0], 16)
        if size:
            yield from _sized(source, size)
            yield _line(source)
    while (trailer := _line(source)) != b"\r\n":
        yield trailer
    yield trailer


def _line(source: BufferedIOBase) -> bytes:
    line = source.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the connection ended inside a chunked body")
    return line
