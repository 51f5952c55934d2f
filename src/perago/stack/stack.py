"""All servers together: start them, stop them, and report their state. Everything is kept in files.

::

    DIRECTORY/settings.env      what clients need, while the stack is up
    DIRECTORY/lock              held by a command that starts or stops servers
    DIRECTORY/SERVER/           one server's credentials, configuration, data, log and record
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from perago.errors import RuntimeConfigError
from perago.file_lock import locked
from perago.settings import STACK_SETTINGS
from perago.stack import conductor, lakefs, spark, spark_connect
from perago.stack.server import LOG, is_healthy, port_for, read_record, start, stop, write_private

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager
    from pathlib import Path

    from perago.stack.server import Server, ServerKind, ServerRecord, StartingServer
    from perago.toolchain.cache import OnLine

KINDS: tuple[ServerKind, ...] = (lakefs.KIND, conductor.KIND)
"""The servers of a stack, in the order they are started."""
ON_REQUEST: tuple[ServerKind, ...] = (*spark.KINDS, spark_connect.KIND)
"""Servers that are started only by name, after the others."""
_LOCK = "lock"
_MARKER = ".gitignore"
_MARKER_TEXT = "# `perago stack` keeps servers here, with their credentials and data.\n*\n"
_SETTINGS_HEADING = "# Written by `perago stack up`; `perago stack down` removes it.\n"
_SECONDS_TO_RECOVER = 10.0
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of one server. ``disk_bytes`` is the size of its directory with the log."""

    name: str
    version: str
    state: Literal["running", "not answering", "stopped"]
    pid: int | None
    endpoint: str | None
    use: str | None
    """``VARIABLE=value``: the setting that makes tasks use it, if the user has to choose that."""
    disk_bytes: int
    directory: Path
    log: Path


def prepare(on_line: OnLine, *, only: Collection[str] | None = None) -> list[str]:
    """Fetch or build what is missing for all servers, or the named ones.

    Returns the names of the servers that missed something. Raises RuntimeConfigError if something
    can't be fetched or built.
    """
    wanted = _all() if only is None else _selected(only)
    missing = [kind for kind in wanted if not kind.is_prepared()]
    for kind in missing:
        kind.prepare(on_line)
    return [kind.name for kind in missing]


def up(directory: Path, on_line: OnLine, *, only: Collection[str] | None = None) -> list[str]:
    """Make the usual servers, or the named ones, run and answer; return the names it started.

    A server that runs and answers is left alone. Writes the settings file of all servers that run.
    An interrupt or a failure stops the servers that were started here. Raises RuntimeConfigError
    if a server can't be fetched or doesn't start, or if the directory holds other files.
    """
    selected = _selected(only)
    prepare(on_line, only=[kind.name for kind in selected])
    with _locked(directory, on_line), ExitStack() as undo:
        _claim(directory)
        starting: list[StartingServer] = []
        settings: dict[str, str] = {}
        for kind in _all():
            place = directory / kind.name
            if kind in selected:
                server = _usable_server(kind, place, on_line)
            else:
                server = _healthy_server(kind, place, on_line)
            if server is None and kind in selected:
                server = kind.server(place, port_for(place), on_line)
                undo.callback(stop, place)
                on_line(f"starting {kind.title} {kind.version} on port {server.port}")
                starting.append(start(server))
            settings.update(server.settings if server else {})
        for one in starting:
            on_line(f"waiting until {one.server.name} answers")
            one.until_healthy()
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        write_private(directory / STACK_SETTINGS, _SETTINGS_HEADING + "".join(lines))
        undo.pop_all()
    return [one.server.name for one in starting]


def down(directory: Path, on_line: OnLine, *, delete_data: bool = False) -> list[str]:
    """Stop every server, the last one first; return the names of those that ran.

    Does nothing in a directory where no stack was ever started.
    """
    if not _is_claimed(directory):
        return []
    with _locked(directory, on_line):
        (directory / STACK_SETTINGS).unlink(missing_ok=True)
        on_line("stopping")
        stopped = [k.name for k in reversed(_all()) if stop(directory / k.name) is not None]
        if delete_data:
            for place in (directory / kind.name for kind in _all()):
                if place.exists():
                    shutil.rmtree(place)
    return stopped


def status(directory: Path, *, only: Collection[str] | None = None) -> list[ServerStatus]:
    """Return the state of the named servers; by default the usual ones and all ever started."""
    shown = _selected(only)
    if only is None:
        shown += [kind for kind in ON_REQUEST if read_record(directory / kind.name)]
    return [_status(kind, directory / kind.name) for kind in shown]


def names() -> list[str]:
    """Return the names that select servers: each server's, or that of its group."""
    return list(dict.fromkeys(kind.group or kind.name for kind in _all()))


def _all() -> tuple[ServerKind, ...]:
    return (*KINDS, *ON_REQUEST)


def _selected(only: Collection[str] | None) -> list[ServerKind]:
    if only is None:
        return list(KINDS)
    return [kind for kind in _all() if kind.name in only or kind.group in only]


def _status(kind: ServerKind, place: Path) -> ServerStatus:
    record = read_record(place)
    process = record.process if record and record.is_running else None
    healthy = record is not None and process is not None and is_healthy(record.health_url)
    endpoint = record.endpoint if record and process else None
    return ServerStatus(
        name=kind.name,
        version=record.version if record and process else kind.version,
        state="running" if healthy else "not answering" if process else "stopped",
        pid=process.pid if process else None,
        endpoint=endpoint,
        use=f"{kind.variable}={endpoint}" if kind.variable and endpoint else None,
        disk_bytes=_disk_bytes(place),
        directory=place,
        log=place / LOG,
    )


def _healthy_server(kind: ServerKind, place: Path, on_line: OnLine) -> Server | None:
    """Return the server that runs and answers there, if there is one."""
    record = read_record(place)
    if record is None or not record.is_running or not is_healthy(record.health_url):
        return None
    return kind.server(place, record.port, on_line)


def _usable_server(kind: ServerKind, place: Path, on_line: OnLine) -> Server | None:
    """Return the server that runs there; stop one that doesn't answer or has another version."""
    record = read_record(place)
    if record is None or not record.is_running:
        return None
    if record.version == kind.version:
        server = kind.server(place, record.port, on_line)
        if _answers_soon(record, server.start_timeout_seconds):
            return server
    on_line(f"{kind.title} {record.version} doesn't answer, or has another version: replacing it")
    stop(place)
    return None


def _answers_soon(record: ServerRecord, start_timeout_seconds: float) -> bool:
    """Wait for a server that may still be starting, because the command that did so was killed."""
    patience = _SECONDS_TO_RECOVER if record.answered else start_timeout_seconds
    deadline = time.monotonic() + patience
    while not is_healthy(record.health_url):
        if not record.is_running or time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _locked(directory: Path, on_line: OnLine) -> AbstractContextManager[int]:
    return locked(
        directory / _LOCK, lambda: on_line(f"waiting: another command works on {directory}")
    )


def _is_claimed(directory: Path) -> bool:
    try:
        return (directory / _MARKER).read_text(encoding="utf-8") == _MARKER_TEXT
    except OSError:
        return False


def _claim(directory: Path) -> None:
    """Mark the directory as a stack's, so that ``--delete-data`` never deletes other files.

    Raises RuntimeConfigError if it holds other files.
    """
    if _is_claimed(directory):
        return
    others = sorted(entry.name for entry in directory.iterdir() if entry.name != _LOCK)
    if others:
        raise RuntimeConfigError(
            f"PERAGO_STACK={directory} holds other files already: {', '.join(others[:3])}",
            fix="set PERAGO_STACK to a directory that is empty or doesn't exist",
        )
    directory.chmod(0o700)
    write_private(directory / _MARKER, _MARKER_TEXT)


def _disk_bytes(place: Path) -> int:
    """Return the bytes that are allocated: lakeFS's database makes large, mostly empty files."""
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - many
            except FileNotFoundError:
                continue
    return total
