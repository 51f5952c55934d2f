"""Where HTTP/1.1 messages begin and end on a connection, whatever they say."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase

_PIECE = 64 * 1024
_BODILESS = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)


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
    """Whether only the connection's end tells where this answer's body ends."""
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
