"""One server on loopback: what it is made of, how it is started, and how we know it is well."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import socket
import ssl
import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.errors import RuntimeConfigError
from perago.stack.processes import Process, start_detached, uninterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from perago.toolchain.cache import OnLine


# --- Files that nobody but their owner may read, and that are never seen half written ---


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` as a whole, readable by its owner alone from its first byte on."""
    # One writer at a time is the callers' lock; the name is theirs alone.
    half = path.with_name(path.name + ".new")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    half.replace(path)


def last_lines(path: Path, lines: int, *, since: int = 0) -> str:
    """The last ``lines`` of what was written to a file after its first ``since`` bytes."""
    try:
        with path.open("rb") as source:
            end = source.seek(0, os.SEEK_END)
            # A window that holds any sensible line length, so that a huge log costs nothing.
            source.seek(max(since, end - lines * 4096))
            text = source.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:]) if lines else ""


LOOPBACK = "127.0.0.1"
LOG = "server.log"
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 2.0
_GRACE_SECONDS = 20.0
_TAIL_LINES = 20
_STATE = "state.json"
_TAIL_WIDTH = 300
_PORT_TRIES = 200
_PORT_SECONDS = 2.0
_PORTS = range(20_000, 32_000)
"""Below those that systems hand out for outgoing connections: a client that keeps trying a stopped
server could otherwise be given the very port it tries, and hold it."""


@dataclass(frozen=True, slots=True)
class Server:
    """All it takes to start one. It keeps everything it writes below ``directory``.

    ``files`` are written there before it starts, readable by their owner alone: secrets belong into
    them and never into ``command``. ``settings`` are the variables that its users need.
    """

    name: str
    version: str
    directory: Path
    command: tuple[str, ...]
    port: int
    health_url: str
    files: Mapping[str, str] = field(repr=False)
    settings: Mapping[str, str] = field(repr=False)
    hidden_variables: str | tuple[str, ...]
    """Variables that begin so would change its configuration, and are kept from it."""
    start_timeout_seconds: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables it gets beside those that it inherits."""

    @property
    def log(self) -> Path:
        return self.directory / LOG


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server the stack can have. Its module makes one; nothing else needs to know about it.

    ``prepare`` fetches or builds what is missing and ``is_prepared`` tells that nothing is;
    ``server`` describes the one of a directory and port, with the same credentials each time.
    """

    name: str
    title: str
    version: str
    prepare: Callable[[OnLine], object]
    is_prepared: Callable[[], bool]
    server: Callable[[Path, int, OnLine], Server]
    group: str | None = None
    """Another name, which it shares with those that are of use only together."""
    variable: str | None = None
    """What a user may set to its endpoint, where it isn't to be used unless somebody says so."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """What a server's directory tells of the one that was started there last."""

    port: int
    health_url: str
    version: str
    process: Process | None
    answered: bool
    """Whether it has been healthy: one that hasn't may still be starting."""

    @property
    def endpoint(self) -> str:
        return address_of(self.health_url)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive


@dataclass(frozen=True, slots=True)
class StartingServer:
    """A server that was told to start. Who begins one has to wait for it, or stop it."""

    server: Server
    process: Process | None
    log_since: int

    def until_healthy(self) -> Process:
        """Return when it answers; if it doesn't, nothing of it is left running.

        Raises RuntimeConfigError with the end of its log if it stops or isn't healthy in time.
        """
        try:
            process = self._await_health()
        except BaseException:
            _abandon(self.server, self.process)
            raise
        _record(self.server, process, answered=True)
        return process

    def _await_health(self) -> Process:
        server, process = self.server, self.process
        deadline = time.monotonic() + server.start_timeout_seconds
        while True:
            if process is None or not process.is_alive:
                raise _unwell(server, "stopped while it was starting", self.log_since)
            if is_healthy(server.health_url) and process.is_alive:
                return process
            if time.monotonic() >= deadline:
                late = f"isn't healthy after {server.start_timeout_seconds:g} s"
                raise _unwell(server, late, self.log_since)
            time.sleep(_POLL_SECONDS)


def address_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def launch(server: Server) -> Process:
    """Start a server and wait. Raises as :meth:`StartingServer.until_healthy` does."""
    return start(server).until_healthy()


def start(server: Server) -> StartingServer:
    """Start a server and don't wait for it, so that several can start side by side.

    An interrupt leaves nothing of it running.
    """
    server.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, text in server.files.items():
        write_private(server.directory / name, text)
    log_before = server.log.stat().st_size if server.log.exists() else 0
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(server.hidden_variables)}
    process = None
    try:
        with uninterrupted():
            process = start_detached(
                server.command,
                directory=server.directory,
                environment={**inherited, **server.environment},
                log=server.log,
            )
            _record(server, process)
    except BaseException:
        _abandon(server, process)
        raise
    return StartingServer(server, process, log_before)


def _abandon(server: Server, process: Process | None) -> None:
    if process is not None:
        process.kill()
    _record(server, None)


def _unwell(server: Server, what: str, log_since: int) -> RuntimeConfigError:
    said = last_lines(server.log, _TAIL_LINES, since=log_since)
    shown = "\n".join(f"    {line[:_TAIL_WIDTH]}" for line in said.splitlines()) or "    nothing"
    return RuntimeConfigError(
        f"{server.name} {server.version} {what}; the last it said was\n{shown}",
        fix=f"its whole log is {server.log}",
    )


def stop(directory: Path) -> bool | None:
    """Stop the server that runs there: None if there is none, False if it had to be killed."""
    recorded = read_record(directory)
    if recorded is None or recorded.process is None or not recorded.is_running:
        return None
    gently = recorded.process.stop(_GRACE_SECONDS)
    _write(directory, replace(recorded, process=None))
    return gently


def _record(server: Server, process: Process | None, *, answered: bool = False) -> None:
    now = ServerRecord(server.port, server.health_url, server.version, process, answered)
    _write(server.directory, now)


def _write(directory: Path, recorded: ServerRecord) -> None:
    write_private(directory / _STATE, json.dumps(asdict(recorded)) + "\n")


def read_record(directory: Path) -> ServerRecord | None:
    """What was noted there last; None if nothing was, or if it makes no sense."""
    try:
        said = json.loads((directory / _STATE).read_text(encoding="utf-8"))
        process = said["process"] and Process(
            int(said["process"]["pid"]), said["process"]["started"]
        )
        return ServerRecord(
            int(said["port"]),
            said["health_url"],
            said["version"],
            process,
            said.get("answered", True),  # a version before this one waited before it noted it
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def is_healthy(url: str) -> bool:
    """Whether the server at this loopback address says that it is well.

    One that doesn't speak HTTP is well when it takes connections.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or LOOPBACK, parts.port
    if parts.scheme not in ("http", "https"):
        return _takes_connections(host, port or 0)
    connection = (
        http.client.HTTPSConnection(host, port, timeout=_ANSWER_SECONDS, context=_any_certificate())
        if parts.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS)
    )
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status < http.client.MULTIPLE_CHOICES
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _any_certificate() -> ssl.SSLContext:
    """Whoever answers on our own machine is asked for nothing but a yes."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def free_port(preferred: int | None = None) -> int:
    """The preferred port if it is free, so that a server keeps its address; else any free one.

    A process that was killed gives its port back only when the last of its threads is gone, so a
    taken one is looked at for a moment.
    """
    if preferred is not None:
        deadline = time.monotonic() + _PORT_SECONDS
        while not is_free(preferred) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if is_free(preferred):
            return preferred
    for _ in range(_PORT_TRIES):
        port = _PORTS[secrets.randbelow(len(_PORTS))]
        if is_free(port):
            return port
    raise RuntimeConfigError(
        f"no free port on {LOOPBACK} between {_PORTS.start} and {_PORTS.stop}",
        fix="end some of the programs that listen there",
    )


def port_for(directory: Path) -> int:
    """The port of the server that was started there last if it is free, else any free one."""
    last = read_record(directory)
    return free_port(last.port if last else None)


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose last connections are only fading away is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
