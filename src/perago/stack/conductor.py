"""Conductor on loopback: its configuration, and one to start in a directory."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING

from perago.machine.java import OPTION_VARIABLES
from perago.stack.conductor_program import VERSION, ensure_conductor, is_cached
from perago.stack.running import Running
from perago.stack.server import LOOPBACK, Kind, Server, launch, port_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perago.machine.tools import Tell

__all__ = ["KIND", "RunningServer", "conductor_server", "ensure_conductor", "is_cached", "start"]

_CONFIG = "application.yaml"
_LOOK_AGAIN = "look-again.sql"
_SCRATCH = "tmp"
_PATIENCE_SECONDS = 240.0


def conductor_server(
    directory: Path,
    port: int,
    tell: Tell,
    *,
    properties: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> Server:
    """A Conductor whose files are all in ``directory``.

    ``properties`` are put over those of :func:`configuration`.
    """
    directory = directory.absolute()
    program = ensure_conductor(tell)
    scratch = directory / _SCRATCH
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    scratch.mkdir(exist_ok=True)
    address = f"http://{LOOPBACK}:{port}"
    return Server(
        name="conductor",
        version=VERSION,
        directory=directory,
        command=(
            *program.command(*java_options, f"-Djava.io.tmpdir={scratch}"),
            # Here, and not in the file, since nothing wins over it.
            *(f"--server.address={LOOPBACK}", f"--server.port={port}"),
        ),
        port=port,
        health_url=f"{address}/health",
        files={
            # JSON is YAML, too.
            _CONFIG: json.dumps({**configuration(), **(properties or {})}, indent=2) + "\n",
            _LOOK_AGAIN: (files("perago.stack") / _LOOK_AGAIN).read_text(encoding="utf-8"),
        },
        settings={"CONDUCTOR_SERVER_URL": f"{address}/api"},
        # Whatever Spring would take for one of its properties, or Java for an option.
        deaf_to=("CONDUCTOR", "SPRING", "SERVER_", "MANAGEMENT_", "LOGGING_", *OPTION_VARIABLES),
        patience_seconds=_PATIENCE_SECONDS,
    )


KIND = Kind(
    name="conductor",
    title="Conductor",
    version=VERSION,
    prepare=ensure_conductor,
    is_prepared=is_cached,
    server=conductor_server,
)


def configuration() -> dict[str, object]:
    """What differs from Conductor's own: all data in one SQLite file, little done when idle.

    A lost lease is noticed within seconds, which else takes up to two minutes on SQLite.
    """
    return {
        # In WAL mode this loses nothing when the process is killed.
        "spring.datasource.url": (
            "jdbc:sqlite:conductor.db?journal_mode=WAL&synchronous=NORMAL&busy_timeout=15000"
        ),
        "spring.sql.init.mode": "always",
        "spring.sql.init.schema-locations": f"file:{_LOOK_AGAIN}",
        "spring.sql.init.separator": "^^",
        # Threads that ask the database for workflows to look at, ten times a second each.
        "conductor.app.sweeperThreadCount": 2,
        # How long a task over its concurrency or rate limit is put off: a minute by default.
        "conductor.app.taskExecutionPostponeDuration": 1,
        "conductor.integrations.ai.enabled": False,
        "conductor.scheduler.enabled": False,
        "spring.main.banner-mode": "off",
        # Spring's own, whose lines begin with the time.
        "logging.config": "classpath:org/springframework/boot/logging/log4j2/log4j2.xml",
        # It reports model keys that nobody has given.
        "logging.level.org.conductoross.conductor.ai": "OFF",
        # It reports each look at each workflow.
        "logging.level.org.conductoross.conductor.core.execution.WorkflowSweeper": "WARN",
    }


class RunningServer(Running):
    """One Conductor for a test."""

    @property
    def address(self) -> str:
        """Of its API, as CONDUCTOR_SERVER_URL has it."""
        return self.settings["CONDUCTOR_SERVER_URL"]


def start(
    directory: Path,
    *,
    port: int | None = None,
    properties: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> RunningServer:
    """Start a Conductor in ``directory``, or in its data there, on ``port`` or any free one.

    ``properties`` are Spring's, put over those of :func:`configuration`. ``java_options`` come
    before the jar: ``-XX:TieredStopAtLevel=1`` starts sooner and works slower. Raises
    RuntimeConfigError if the program can't be had or the server doesn't become healthy.
    """
    server = conductor_server(
        directory,
        port or port_for(directory),
        lambda _line: None,
        properties=properties,
        java_options=java_options,
    )
    return RunningServer(server, launch(server))
