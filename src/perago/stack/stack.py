"""All servers together: up, down, and how they are. What has to be remembered is in a directory.

::

    DIRECTORY/settings.env      what clients need, while the stack is up
    DIRECTORY/lock              held by whoever starts or stops
    DIRECTORY/SERVER/           one server's credentials, configuration, data, log and process
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
from perago.stack.server import LOG, begin, is_healthy, port_for, read_record, stop, write_private

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager
    from pathlib import Path

    from perago.stack.server import Kind, Recorded, Server, Starting
    from perago.toolchain.cache import Tell


KINDS: tuple[Kind, ...] = (lakefs.KIND, conductor.KIND)
"""What a stack has, in the order they are started."""
ON_REQUEST: tuple[Kind, ...] = (*spark.KINDS, spark_connect.KIND)
"""What it has besides if somebody asks for it by name, started after those."""
_CLAIM = ".gitignore"
_CLAIM_TEXT = "# `perago stack` keeps servers here, with their credentials and data.\n*\n"
_SETTINGS_HEADING = "# Written by `perago stack up`; `perago stack down` removes it.\n"
_SECONDS_TO_RECOVER = 10.0


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """How one server is. ``disk_bytes`` is what its directory takes, log included."""

    name: str
    version: str
    state: Literal["running", "not answering", "stopped"]
    pid: int | None
    endpoint: str | None
    use: str | None
    """The setting that has it used, where that is left to the user."""
    disk_bytes: int
    directory: Path
    log: Path


def prepare(tell: Tell, *, only: Collection[str] | None = None) -> list[str]:
    """Fetch or build what is missing, for all servers or the named ones; which had some missing."""
    wanted = _all() if only is None else _chosen(only)
    missing = [kind for kind in wanted if not kind.is_prepared()]
    for kind in missing:
        kind.prepare(tell)
    return [kind.name for kind in missing]


def up(directory: Path, tell: Tell, *, only: Collection[str] | None = None) -> list[str]:
    """Make the usual servers or the named ones run and answer; those it started.

    Writes the settings of all that run.

    One that runs and answers is left alone. An interrupt or a failure stops what was started here.
    Raises RuntimeConfigError if a server can't be had or doesn't start, or the directory holds
    something else.
    """
    chosen = _chosen(only)
    prepare(tell, only=[kind.name for kind in chosen])
    with _alone(directory, tell), ExitStack() as undo:
        _claim(directory)
        starting: list[Starting] = []
        settings: dict[str, str] = {}
        for kind in _all():
            place = directory / kind.name
            server = _kept(kind, place, tell) if kind in chosen else _as_it_is(kind, place, tell)
            if server is None and kind in chosen:
                server = kind.server(place, port_for(place), tell)
                undo.callback(stop, place)
                tell(f"starting {kind.title} {kind.version} on port {server.port}")
                starting.append(begin(server))
            settings.update(server.settings if server else {})
        for one in starting:
            tell(f"waiting until {one.server.name} answers")
            one.until_healthy()
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        write_private(directory / STACK_SETTINGS, _SETTINGS_HEADING + "".join(lines))
        undo.pop_all()
    return [one.server.name for one in starting]


def down(directory: Path, tell: Tell, *, delete_data: bool = False) -> list[str]:
    """Stop every server, the last one first; the servers that ran. Data stays unless it is asked.

    A directory that no stack was ever started in is left as it is.
    """
    if not _is_claimed(directory):
        return []
    with _alone(directory, tell):
        (directory / STACK_SETTINGS).unlink(missing_ok=True)
        tell("stopping")
        stopped = [k.name for k in reversed(_all()) if stop(directory / k.name) is not None]
        if delete_data:
            for place in (directory / kind.name for kind in _all()):
                if place.exists():
                    shutil.rmtree(place)
    return stopped


def status(directory: Path, *, only: Collection[str] | None = None) -> list[ServerStatus]:
    """How the named ones are; else the usual ones, and others that were started there."""
    shown = _chosen(only)
    if only is None:
        shown += [kind for kind in ON_REQUEST if read_record(directory / kind.name)]
    return [_status(kind, directory / kind.name) for kind in shown]


def names() -> list[str]:
    """What servers are called, alone and in groups."""
    return list(dict.fromkeys(kind.group or kind.name for kind in _all()))


def _all() -> tuple[Kind, ...]:
    return (*KINDS, *ON_REQUEST)


def _chosen(only: Collection[str] | None) -> list[Kind]:
    if only is None:
        return list(KINDS)
    return [kind for kind in _all() if kind.name in only or kind.group in only]


def _status(kind: Kind, place: Path) -> ServerStatus:
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
        disk_bytes=_bytes_below(place),
        directory=place,
        log=place / LOG,
    )


def _as_it_is(kind: Kind, place: Path, tell: Tell) -> Server | None:
    """The server that runs and answers there, if there is one."""
    record = read_record(place)
    if record is None or not record.is_running or not is_healthy(record.health_url):
        return None
    return kind.server(place, record.port, tell)


def _kept(kind: Kind, place: Path, tell: Tell) -> Server | None:
    """The server that runs there; None, with nothing running, if it is of no use any more."""
    record = read_record(place)
    if record is None or not record.is_running:
        return None
    if record.version == kind.version:
        server = kind.server(place, record.port, tell)
        if _answers_soon(record, server.patience_seconds):
            return server
    tell(f"{kind.title} {record.version} doesn't answer, or is another version's: replacing it")
    stop(place)
    return None


def _answers_soon(record: Recorded, patience_seconds: float) -> bool:
    """It may have been started a moment ago, by a command that was killed."""
    deadline = time.monotonic() + (_SECONDS_TO_RECOVER if record.answered else patience_seconds)
    while not is_healthy(record.health_url):
        if not record.is_running or time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _alone(directory: Path, tell: Tell) -> AbstractContextManager[None]:
    return locked(
        directory / "lock", lambda: tell(f"waiting: another command works on {directory}")
    )


def _is_claimed(directory: Path) -> bool:
    try:
        return (directory / _CLAIM).read_text(encoding="utf-8") == _CLAIM_TEXT
    except OSError:
        return False


def _claim(directory: Path) -> None:
    """Make the directory ours, so that ``--delete-data`` can never delete somebody else's files."""
    if _is_claimed(directory):
        return
    others = sorted(entry.name for entry in directory.iterdir() if entry.name != "lock")
    if others:
        raise RuntimeConfigError(
            f"PERAGO_STACK={directory} holds other files already: {', '.join(others[:3])}",
            fix="set PERAGO_STACK to a directory of its own",
        )
    directory.chmod(0o700)
    write_private(directory / _CLAIM, _CLAIM_TEXT)


def _bytes_below(place: Path) -> int:
    """What it takes on disk: lakeFS's database makes large files that are mostly holes."""
    total = 0
    for folder, _, names in os.walk(place):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512  # noqa: PTH118 - many
            except FileNotFoundError:
                continue
    return total
