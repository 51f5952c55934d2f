"""A wire between a client and a real server, on which requests and answers get lost.

::

    with FaultyWire("http://127.0.0.1:8000") as wire:
        wire.on(method="POST", path="/merge/", fault=drop_answer)   the first merge is applied,
        ...  # a client of wire.endpoint                            and its answer never comes
        assert wire.counts(method="POST", path="/merge/") == 1       and was it sent only once?
        assert not wire.unfired

What no rule speaks of passes unchanged, the Host header too, which signatures cover. A fault is any
function of an :class:`Exchange`; those here are what networks do.
"""

from __future__ import annotations

import re
import socket
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any, Literal, Self
from urllib.parse import urlsplit

from perago.errors import RuntimeConfigError
from support.exchange import Answer, Cut, Exchange, Head, Passed, Upstream, read_head

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Fault = Callable[[Exchange], None]
    """Given an exchange of which nothing has happened yet, makes happen what happens to it."""

_HOST = "127.0.0.1"
_CONNECT_SECONDS = 5.0
_SHUTDOWN_POLL_SECONDS = 0.02


@dataclass(eq=False)
class Rule:
    """Which requests meet which fault. ``times`` of None is every time."""

    method: str | None
    path: re.Pattern[str]
    fault: Fault
    times: int | None
    skip: int
    fired: int = 0

    def takes(self, request: Passed) -> bool:
        """Whether the fault is this request's; counted as fired if so."""
        if self.method not in (None, request.method) or not self.path.search(request.path):
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.times is not None and self.fired >= self.times:
            return False
        self.fired += 1
        return True


class FaultyWire:
    """Forwards HTTP/1.1 from a loopback port of its own to ``target``; a context manager."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        if parts.scheme != "http" or not parts.hostname:
            raise RuntimeConfigError(
                f"a wire can't lead to {target!r}", fix="give it as http://HOST:PORT"
            )
        self._target = (parts.hostname, parts.port or 80)
        self._guard = threading.Lock()
        self._rules: list[Rule] = []
        self._requests: list[Passed] = []
        self._open: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self.closing = threading.Event()
        self._server = _Listener((_HOST, 0), self)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_SHUTDOWN_POLL_SECONDS,), name="wire"
        )

    @property
    def endpoint(self) -> str:
        return f"http://{_HOST}:{self._server.server_address[1]}"

    def on(
        self,
        fault: Fault,
        *,
        method: str | None = None,
        path: str = "",
        times: int | None = 1,
        skip: int = 0,
    ) -> Rule:
        """Let the next ``times`` matching requests meet ``fault``, after ``skip`` of them passed.

        ``path`` is a regular expression, searched for in the path with its query. Of several rules
        that match, the one given first has its way.
        """
        rule = Rule(method, re.compile(path), fault, times, skip)
        with self._guard:
            self._rules.append(rule)
        return rule

    def clear(self) -> None:
        """Forget all rules and all requests."""
        with self._guard:
            self._rules.clear()
            self._requests.clear()

    @property
    def requests(self) -> list[Passed]:
        """Everything clients sent, in the order it came, whatever became of it."""
        with self._guard:
            return list(self._requests)

    def counts(self, *, method: str | None = None, path: str = "") -> int:
        """How many matching requests clients sent."""
        return sum(
            method in (None, sent.method) and re.search(path, sent.path) is not None
            for sent in self.requests
        )

    @property
    def unfired(self) -> list[Rule]:
        """Rules that met no request: a test should leave none."""
        with self._guard:
            return [rule for rule in self._rules if not rule.fired]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        with self._guard:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for it
        self._server.server_close()

    # --- for the connections ----------------------------------------------------------------------

    def fault_for(self, request: Passed) -> Fault:
        with self._guard:
            self._requests.append(request)
            return next((rule.fault for rule in self._rules if rule.takes(request)), healthy)

    def connect(self) -> socket.socket:
        """A connection to the server. Raises OSError."""
        made = socket.create_connection(self._target, timeout=_CONNECT_SECONDS)
        made.settimeout(None)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.watch(made)
        return made

    def watch(self, one: socket.socket) -> None:
        """Have it woken up when the wire is taken away."""
        with self._guard:
            self._open.add(one)


class _Listener(ThreadingTCPServer):
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], wire: FaultyWire) -> None:
        self.wire = wire
        super().__init__(address, _Connection)

    def shutdown_request(self, request: Any) -> None:
        """Only close it: a good-bye first would make an orderly end of a cut."""
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let a bug in here end its thread loudly; what networks do is dealt with before."""
        del request, client_address
        raise  # noqa: PLE0704 - called while the exception is being handled


class _Connection(StreamRequestHandler):
    """One client's connection and, once it is needed, one to the server on its behalf."""

    disable_nagle_algorithm = True
    server: _Listener

    def handle(self) -> None:
        wire = self.server.wire
        upstream = Upstream(wire.connect)
        wire.watch(self.connection)
        try:
            with suppress(OSError, Cut):
                while not wire.closing.is_set() and (head := read_head(self.rfile)):
                    exchange = Exchange(head, self, upstream, wire.closing)
                    wire.fault_for(exchange.request)(exchange)
                    if exchange.is_last:
                        return
        finally:
            upstream.close()

    def finish(self) -> None:
        with suppress(OSError):  # the client may be gone
            super().finish()


# --- what networks do -----------------------------------------------------------------------------


def healthy(exchange: Exchange) -> None:
    """Pass it on, and the answer back."""
    exchange.reply(exchange.forward())


def drop_request(exchange: Exchange) -> None:
    """Never arrives; the client's connection is cut."""
    exchange.cut()


def drop_answer(exchange: Exchange) -> None:
    """Applied and answered, but the client's connection is cut before the answer gets there."""
    exchange.forward().keep()
    exchange.cut()


def delay(seconds: float, when: Literal["before", "after"] = "before") -> Fault:
    """Takes its time: on the way there, or on the way back, when it is applied already."""

    def fault(exchange: Exchange) -> None:
        if when == "before":
            exchange.keep_body()
            exchange.wait(seconds)
            healthy(exchange)
        else:
            answer = exchange.forward().keep()
            exchange.wait(seconds)
            exchange.reply(answer)

    return fault


def duplicate(answer: Literal["first", "second"] = "second") -> Fault:
    """Arrives twice, one after the other; the client gets one of the two answers."""

    def fault(exchange: Exchange) -> None:
        exchange.keep_body()
        first = exchange.forward().keep()
        second = exchange.forward().keep()
        exchange.reply(first if answer == "first" else second)

    return fault


def cut_request(after_bytes: int) -> Fault:
    """The server gets the request without the rest of its body; the client's connection is cut."""

    def fault(exchange: Exchange) -> None:
        exchange.forward_part(after_bytes)
        exchange.cut()

    return fault


def cut_answer(after_bytes: int) -> Fault:
    """Applied; the client gets the answer without the rest of its body."""

    def fault(exchange: Exchange) -> None:
        exchange.reply_part(exchange.forward(), after_bytes)

    return fault


def answer(status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Fault:
    """Never arrives; a proxy in between answers."""

    def fault(exchange: Exchange) -> None:
        exchange.keep_body()
        exchange.reply(_made_up(status, body, headers))

    return fault


def answer_after_applying(
    status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
) -> Fault:
    """Applied; a proxy in between answers instead of the server."""

    def fault(exchange: Exchange) -> None:
        exchange.forward().keep()
        exchange.reply(_made_up(status, body, headers))

    return fault


def set_header(name: str, value: str) -> Fault:
    """The server's answer with one header changed."""

    def fault(exchange: Exchange) -> None:
        found = exchange.forward()
        found.head = found.head.having(name, value)
        exchange.reply(found)

    return fault


def _made_up(status: int, body: bytes, headers: Mapping[str, str] | None) -> Answer:
    fields = {"Content-Length": str(len(body)), **(headers or {})}
    return Answer(
        Head(f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", tuple(fields.items())), [body]
    )
