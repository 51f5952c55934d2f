"""One server on loopback: what it is made of, how it is started and stopped, whether it is healthy.

A server's directory holds its files, its log, and a record of the process that runs there.
"""

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
from perago.stack.processes import Process, interrupts_deferred, start_detached

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from perago.toolchain.cache import OnLine

LOOPBACK = "127.0.0.1"
LOG = "server.log"
_RECORD = "state.json"
_POLL_SECONDS = 0.05
_ANSWER_SECONDS = 2.0
_GRACE_SECONDS = 20.0
_TAIL_LINES = 20
_TAIL_WIDTH = 300
_BYTES_PER_LINE = 4096
_PORT_TRIES = 200
_PORT_SECONDS = 2.0
_PORTS = range(20_000, 32_000)
"""Below the range of ports for outgoing connections: otherwise a client that keeps trying to reach
a stopped server could get that very port for its own end, and block it."""


@dataclass(frozen=True, slots=True)
class Server:
    """How to start a server, which writes only below ``directory``.

    ``files`` are written and ``folders`` made there before it starts. Only their owner can read
    them: secrets belong in files and never in ``command``. ``settings`` are the variables that its
    clients need.
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
    """Prefixes of variables that would change its configuration: it doesn't inherit them."""
    folders: tuple[str, ...] = ()
    start_timeout_seconds: float = 60.0
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables it gets besides those that it inherits."""

    @property
    def log(self) -> Path:
        return self.directory / LOG


@dataclass(frozen=True, slots=True)
class ServerKind:
    """A server that the stack can have.

    ``prepare`` fetches or builds what is missing, and ``is_prepared`` says that nothing is;
    ``server`` describes the one of a directory and port, with the same credentials each time.
    """

    name: str
    title: str
    version: str
    prepare: Callable[[OnLine], object]
    is_prepared: Callable[[], bool]
    server: Callable[[Path, int, OnLine], Server]
    group: str | None = None
    """A second name, shared by servers that are only useful together."""
    variable: str | None = None
    """The variable a user sets to its endpoint, if clients don't use it on their own."""


@dataclass(frozen=True, slots=True)
class ServerRecord:
    """The server that was last started in a directory, as recorded there."""

    port: int
    health_url: str
    version: str
    process: Process | None
    answered: bool
    """Whether it has ever been healthy: if not, it may still be starting."""

    @property
    def endpoint(self) -> str:
        return address_of(self.health_url)

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive


@dataclass(frozen=True, slots=True)
class StartingServer:
    """A server that was started. The caller must wait for it or stop it."""

    server: Server
    process: Process | None
    log_offset: int

    def until_healthy(self) -> Process:
        """Wait until it answers. If it doesn't, it is killed.

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
                raise self._error("stopped while it was starting")
            if is_healthy(server.health_url) and process.is_alive:
                return process
            if time.monotonic() >= deadline:
                raise self._error(f"isn't healthy after {server.start_timeout_seconds:g} s")
            time.sleep(_POLL_SECONDS)

    def _error(self, problem: str) -> RuntimeConfigError:
        server = self.server
        lines = last_lines(server.log, _TAIL_LINES, since=self.log_offset).splitlines()
        shown = "\n".join(f"    {line[:_TAIL_WIDTH]}" for line in lines) or "    nothing"
        return RuntimeConfigError(
            f"{server.name} {server.version} {problem}; its last log lines are\n{shown}",
            fix=f"see its whole log: {server.log}",
        )


def launch(server: Server) -> Process:
    """Start a server and wait for it. Raises as :meth:`StartingServer.until_healthy` does."""
    return start(server).until_healthy()


def start(server: Server) -> StartingServer:
    """Start a server without waiting for it, so that several can start side by side.

    If this is interrupted, the server doesn't run.
    """
    server.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in server.folders:
        (server.directory / name).mkdir(exist_ok=True)
    for name, text in server.files.items():
        write_private(server.directory / name, text)
    log_offset = server.log.stat().st_size if server.log.exists() else 0
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(server.hidden_variables)}
    process = None
    try:
        with interrupts_deferred():
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
    return StartingServer(server, process, log_offset)


def stop(directory: Path) -> bool | None:
    """Stop the server that runs there.

    Returns None if there is none, and False if SIGTERM wasn't enough and it was killed.
    """
    record = read_record(directory)
    if record is None or record.process is None or not record.is_running:
        return None
    gently = record.process.stop(_GRACE_SECONDS)
    _write_record(directory, replace(record, process=None))
    return gently


def _abandon(server: Server, process: Process | None) -> None:
    if process is not None:
        process.kill()
    _record(server, None)


def _record(server: Server, process: Process | None, *, answered: bool = False) -> None:
    record = ServerRecord(server.port, server.health_url, server.version, process, answered)
    _write_record(server.directory, record)


def _write_record(directory: Path, record: ServerRecord) -> None:
    write_private(directory / _RECORD, json.dumps(asdict(record)) + "\n")


def read_record(directory: Path) -> ServerRecord | None:
    """Return the record of a server's directory; None if there is none that can be read."""
    try:
        fields = json.loads((directory / _RECORD).read_text(encoding="utf-8"))
        process = fields["process"] and Process(
            int(fields["process"]["pid"]), fields["process"]["started"]
        )
        return ServerRecord(
            int(fields["port"]),
            fields["health_url"],
            fields["version"],
            process,
            fields.get("answered", True),  # earlier versions recorded only servers that answered
        )
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def is_healthy(url: str) -> bool:
    """Whether the server at this loopback address reports that it is healthy.

    A server that doesn't speak HTTP is healthy when it accepts connections.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or LOOPBACK, parts.port
    if parts.scheme not in ("http", "https"):
        return _accepts_connections(host, port or 0)
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


def _accepts_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), _ANSWER_SECONDS).close()
    except OSError:
        return False
    return True


def _any_certificate() -> ssl.SSLContext:
    """On loopback, and without sending anything secret, any certificate will do."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def address_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def port_for(directory: Path) -> int:
    """Return the last port of the server in this directory if it is free, else any free one."""
    last = read_record(directory)
    return free_port(last.port if last else None)


def free_port(preferred: int | None = None) -> int:
    """Return the preferred port if it is free, else any free one.

    A killed process gives its port back only when its last thread is gone, so this waits a moment
    for a preferred port. Raises RuntimeConfigError if no port is free.
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


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port is free even while its last connections are in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def write_private(path: Path, text: str) -> None:
    """Replace ``path`` atomically by a file that only its owner may read."""
    # The temporary name needs no random part: callers hold the stack's lock.
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(text)
    temporary.replace(path)


def last_lines(path: Path, lines: int, *, since: int = 0) -> str:
    """Return the last ``lines`` that were written to a file after its first ``since`` bytes."""
    try:
        with path.open("rb") as source:
            end = source.seek(0, os.SEEK_END)
            # Read only the end: a log may be huge.
            source.seek(max(since, end - lines * _BYTES_PER_LINE))
            text = source.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:]) if lines else ""
