"""A worker's health, and its HTTP endpoint: ``/health``, ``/ready`` and ``/metrics``.

It listens on loopback unless another address is given: it has no authentication, and no secrets.
"""

from __future__ import annotations

import ipaddress
import socket
import socketserver
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from perago.errors import RuntimeConfigError
from perago.worker.events import OrchestratorReachable, OrchestratorUnreachable
from perago.worker.telemetry_config import open_telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.worker.events import Observer, WorkerEvent


STUCK_SECONDS = 30.0
"""How long the supervisor's loop may take for one tick; it ticks about twice a second."""


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What a worker knows of itself.

    ``ticked_at`` is when its loop last completed a tick, on the monotonic clock.
    ``orchestrator_problem`` is the code of the last error from the orchestrator, if there was no
    answer since.
    """

    ticked_at: float
    executors_ready: int
    orchestrator_answered: bool
    orchestrator_problem: str | None = None
    stopping: bool = False


def liveness_problem(state: ServiceState, now: float) -> str | None:
    """Why the worker should be restarted; None if it shouldn't, or if it is stopping."""
    still = now - state.ticked_at
    if state.stopping or still < STUCK_SECONDS:
        return None
    return f"the supervisor's loop has stood still for {still:.0f} s"


def readiness_problem(state: ServiceState, now: float) -> str | None:
    """Why the worker takes no work right now; None if it does."""
    if state.stopping:
        return "stopping"
    if state.orchestrator_problem:
        return f"the orchestrator doesn't answer as it should ({state.orchestrator_problem})"
    if not state.executors_ready:
        return "no executor is up"
    if not state.orchestrator_answered:
        return "the orchestrator hasn't answered yet"
    return liveness_problem(state, now)


class ServiceProbe(Protocol):
    """What the endpoint's threads read of a service."""

    @property
    def ticked_at(self) -> float: ...
    @property
    def executors_ready(self) -> int: ...
    @property
    def stopping(self) -> bool: ...


class WorkerHealth:
    """The state of a service, and whether the orchestrator answers it."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._service: ServiceProbe | None = None
        self._has_answered = False
        self._problem: str | None = None

    def watch(self, service: ServiceProbe) -> None:
        self._service = service

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case OrchestratorReachable():
                self._has_answered, self._problem = True, None
            case OrchestratorUnreachable(error):
                self._problem = error.code

    def state(self) -> ServiceState:
        if (service := self._service) is None:
            return ServiceState(self._began, executors_ready=0, orchestrator_answered=False)
        return ServiceState(
            service.ticked_at,
            service.executors_ready,
            self._has_answered,
            self._problem,
            stopping=service.stopping,
        )


LOOPBACK = "127.0.0.1"
CLIENT_SECONDS = 5.0
"""How long a client may take to send its request, and to read the reply."""
_SHUTDOWN_POLL_SECONDS = 0.25  # how soon the end of service is noticed
_LARGEST_PORT = 65535
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TEXT_TYPE = "text/plain; charset=utf-8"
NO_METRICS = (
    "no metrics: the otel extra isn't installed (pip install 'perago-runtime[otel]'), "
    "or OTEL_SDK_DISABLED is set"
)


class Endpoint:
    """Serves HTTP at an address from :meth:`start` to :meth:`stop`, in its own threads.

    ``state`` and ``metrics`` are called in those threads. Raises RuntimeConfigError if ``address``
    is not an address.
    """

    def __init__(
        self,
        address: str,
        state: Callable[[], ServiceState],
        metrics: Callable[[], bytes] | None,
    ) -> None:
        self._given = address
        self._address = parse_address(address)
        self._state = state
        self._metrics = metrics
        self._server: _Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on, also if the address has port 0 (any free one)."""
        return int(self._server.server_address[1]) if self._server else self._address.port

    def start(self) -> None:
        """Raises RuntimeConfigError if it can't listen there."""
        try:
            self._server = _Server(self._address, self._reply)
        except OSError as error:
            raise RuntimeConfigError(
                f"PERAGO_LISTEN={self._given!r}: can't listen there: {error.strerror or error}",
                fix="choose an address of this machine and a port that is free",
            ) from error
        threading.Thread(
            target=self._server.serve_forever,
            args=(_SHUTDOWN_POLL_SECONDS,),
            daemon=True,
            name="endpoint",
        ).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _reply(self, path: str) -> Reply:
        match path.partition("?")[0]:
            case "/health":
                return _check_reply(liveness_problem(self._state(), time.monotonic()))
            case "/ready":
                return _check_reply(readiness_problem(self._state(), time.monotonic()))
            case "/metrics" if self._metrics is not None:
                return Reply(HTTPStatus.OK, self._metrics(), METRICS_TYPE)
            case "/metrics":
                return Reply(HTTPStatus.NOT_FOUND, f"{NO_METRICS}\n".encode())
            case _:
                return Reply(HTTPStatus.NOT_FOUND, b"there are /health, /ready and /metrics\n")


class Reply(NamedTuple):
    status: HTTPStatus
    body: bytes
    kind: str = TEXT_TYPE


def _check_reply(problem: str | None) -> Reply:
    if problem is None:
        return Reply(HTTPStatus.OK, b"ok\n")
    return Reply(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n".encode())


class Address(NamedTuple):
    host: str
    port: int

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET6 if ":" in self.host else socket.AF_INET


def parse_address(text: str) -> Address:
    """Parse ``HOST:PORT``, ``[IPv6]:PORT``, or a port alone, which means loopback.

    Raises RuntimeConfigError.
    """
    host, _, port = text.strip().rpartition(":")
    plain = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{plain}]"
    if not _is_port(port) or bracketed != (":" in plain) or not _is_host(plain):
        raise RuntimeConfigError(
            f"PERAGO_LISTEN={text!r} is not an address to listen on",
            fix=f"give HOST:PORT, such as {LOOPBACK}:9464",
        )
    return Address(plain or LOOPBACK, int(port))


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) <= _LARGEST_PORT


def _is_host(text: str) -> bool:
    if ":" in text:
        try:
            ipaddress.IPv6Address(text)
        except ValueError:
            return False
    return not set(text) & set("/@ ")


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: Address, reply: Callable[[str], Reply]) -> None:
        self.address_family = address.family

        class Handler(_Handler):
            reply_to = staticmethod(reply)

        super().__init__((address.host, address.port), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a client that disconnected."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    timeout = CLIENT_SECONDS
    server_version = "perago"
    sys_version = ""
    reply_to: Callable[[str], Reply]

    def do_GET(self) -> None:
        reply = self.reply_to(self.path)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(reply.body)

    do_HEAD = do_GET  # noqa: N815 - the name is HTTP's

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log no requests."""


@contextmanager
def serving(listen: str | None) -> Iterator[tuple[list[Observer], Callable[[ServiceProbe], None]]]:
    """Serve health and metrics at ``listen``, if given, and send telemetry if configured.

    Yields the observers to use, and a function that takes the service whose health it is.
    Raises RuntimeConfigError.
    """
    health = WorkerHealth()
    observers: list[Observer] = [health]
    with ExitStack() as stack:
        telemetry = open_telemetry(listen)
        if telemetry is not None:
            stack.callback(telemetry.close)
            observers.append(telemetry)
        if listen is not None:
            metrics = telemetry.metrics_text if telemetry is not None else None
            endpoint = Endpoint(listen, health.state, metrics)
            endpoint.start()
            stack.callback(endpoint.stop)
        yield observers, health.watch
