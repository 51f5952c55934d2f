"""Conductor on loopback: its program, its configuration, and the server of a directory.

The program is a Java, the server's jars, and an archive of loaded classes for a quick start.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from perago.stack import maven
from perago.stack.server import LOOPBACK, Server, ServerKind
from perago.toolchain.cache import Tool, cache_problem, ensure, run
from perago.toolchain.java import OPTION_VARIABLES, find_java, installed_java, java_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perago.toolchain.cache import OnLine
    from perago.toolchain.java import Java

VERSION = "3.32.3"
OLDEST_JAVA = 21
_ARTIFACT = maven.Artifact(
    group="org.conductoross",
    name="conductor-server",
    version=VERSION,
    classifier="boot",
    sha256="6b1615a5beb82bbbfa05219d0f1b84440aa8c0bef1371662803ef5588d7d507b",
    size=457_760_812,
)
_JAR = "server/conductor-server.jar"
_SERVER = Tool("conductor", VERSION, (_JAR,), size_checked="server/lib/*.jar")
_ARCHIVE = "classes.jsa"
_IN_DOCKER = "run the server in Docker: compose.yaml"
_NO_START = f"set JAVA_HOME to another Java; or {_IN_DOCKER}"
# The collector that needs least memory; a clear end instead of a slow one when memory runs out;
# and no file of performance data, which would be outside the server's directory.
_JAVA_OPTIONS = (
    "-Xmx768m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
)
_CONFIG = "application.yaml"
_LOOK_AGAIN = "look-again.sql"
_SCRATCH = "tmp"
_START_TIMEOUT_SECONDS = 240.0


def conductor_server(
    directory: Path,
    port: int,
    on_line: OnLine,
    *,
    properties: Mapping[str, object] | None = None,
    java_options: Sequence[str] = (),
) -> Server:
    """Describe a Conductor whose files are all in ``directory``.

    ``properties`` are Spring's and override those of :func:`configuration`. Raises
    RuntimeConfigError as :func:`ensure_conductor` does.
    """
    directory = directory.absolute()
    program = ensure_conductor(on_line)
    address = f"http://{LOOPBACK}:{port}"
    return Server(
        name="conductor",
        version=VERSION,
        directory=directory,
        command=(
            *program.command(*java_options, f"-Djava.io.tmpdir={directory / _SCRATCH}"),
            # Arguments, because these override any file or variable.
            *(f"--server.address={LOOPBACK}", f"--server.port={port}"),
        ),
        port=port,
        health_url=f"{address}/health",
        files={
            # JSON is YAML, too.
            _CONFIG: json.dumps({**configuration(), **(properties or {})}, indent=2) + "\n",
            _LOOK_AGAIN: (files("perago.stack") / _LOOK_AGAIN).read_text(encoding="utf-8"),
        },
        folders=(_SCRATCH,),
        settings={"CONDUCTOR_SERVER_URL": f"{address}/api"},
        # Spring would take these for its properties, and Java for its options.
        hidden_variables=(
            *("CONDUCTOR", "SPRING", "SERVER_", "MANAGEMENT_", "LOGGING_"),
            *OPTION_VARIABLES,
        ),
        start_timeout_seconds=_START_TIMEOUT_SECONDS,
    )


def configuration() -> dict[str, object]:
    """Return what differs from Conductor's defaults: one SQLite file, little work when idle.

    A lost lease is noticed within seconds; by default that takes up to two minutes on SQLite.
    """
    return {
        # In WAL mode this loses nothing when the process is killed.
        "spring.datasource.url": (
            "jdbc:sqlite:conductor.db?journal_mode=WAL&synchronous=NORMAL&busy_timeout=15000"
        ),
        "spring.sql.init.mode": "always",
        "spring.sql.init.schema-locations": f"file:{_LOOK_AGAIN}",
        "spring.sql.init.separator": "^^",
        # Each of these threads asks the database ten times a second for workflows to look at.
        "conductor.app.sweeperThreadCount": 2,
        # How long a task over its concurrency or rate limit is postponed: a minute by default.
        "conductor.app.taskExecutionPostponeDuration": 1,
        "conductor.integrations.ai.enabled": False,
        "conductor.scheduler.enabled": False,
        "spring.main.banner-mode": "off",
        # Spring's own, whose lines begin with the time.
        "logging.config": "classpath:org/springframework/boot/logging/log4j2/log4j2.xml",
        # It reports missing API keys of AI models.
        "logging.level.org.conductoross.conductor.ai": "OFF",
        # It reports every look at every workflow.
        "logging.level.org.conductoross.conductor.core.execution.WorkflowSweeper": "WARN",
    }


@dataclass(frozen=True, slots=True)
class ConductorProgram:
    """``archive`` holds the jars' classes as ``java`` loads them, ready to be mapped."""

    java: Java
    jar: Path
    archive: Path

    def command(self, *java_options: str) -> tuple[str, ...]:
        """Return the command that starts it; arguments of the server may follow."""
        shared = f"-XX:SharedArchiveFile={self.archive}"
        return _command(self.java, self.jar, (shared, *java_options))


def ensure_conductor(on_line: OnLine) -> ConductorProgram:
    """Return the program; fetch it, unpack it and start it once if it isn't in the cache.

    Raises RuntimeConfigError if a Java or the server can't be fetched, or doesn't run.
    """
    java = find_java(OLDEST_JAVA, on_line, instead=_IN_DOCKER)
    jar = ensure(_SERVER, lambda target: _unpack(java, target, on_line), on_line) / _JAR
    archive = ensure(
        _archive_of(java), lambda target: _first_run(java, jar, target, on_line), on_line
    )
    return ConductorProgram(java, jar, archive / _ARCHIVE)


def is_cached() -> bool:
    """Whether :func:`ensure_conductor` has nothing to fetch or make."""
    java = installed_java(OLDEST_JAVA)
    if java is None:
        return False
    return all(cache_problem(tool) is None for tool in (_SERVER, _archive_of(java)))


def _archive_of(java: Java) -> Tool:
    return Tool("conductor-archive", f"{VERSION}-java-{java.feature}-{java.build}", (_ARCHIVE,))


def _unpack(java: Java, target: Path, on_line: OnLine) -> None:
    """Unpack the jar of jars: Java reads plain jars sooner, and can archive only those."""
    download = target / "download"
    download.mkdir()
    boot = maven.fetch(_ARTIFACT, download, on_line)
    on_line(f"unpacking Conductor {VERSION}")
    run(
        [
            *(java.program, "-Djarmode=tools", "-jar", boot, "extract"),
            *("--destination", target / "server", "--application-filename", "conductor-server.jar"),
        ],
        doing=f"unpacking Conductor {VERSION}",
        fix=_NO_START,
        environment=java_environment(),
        directory=target,
    )
    shutil.rmtree(download)


def _first_run(java: Java, jar: Path, target: Path, on_line: OnLine) -> None:
    """Start it until it would serve; at the end Java archives the classes it has loaded."""
    on_line(f"starting Conductor {VERSION} for the first time: about a minute, once for this Java")
    scratch = target / "first"
    scratch.mkdir()
    options = (
        f"-XX:ArchiveClassesAtExit={target / _ARCHIVE}",
        "-Dspring.context.exit=onRefresh",
        f"-Djava.io.tmpdir={scratch}",
    )
    run(
        [*_command(java, jar, options), "--server.port=0", f"--server.address={LOOPBACK}"],
        doing=f"starting Conductor {VERSION} for the first time",
        fix=_NO_START,
        environment=java_environment(),
        directory=scratch,
    )
    shutil.rmtree(scratch)
    # A Java that can't write an archive starts without one: it ignores an empty file.
    (target / _ARCHIVE).touch()


def _command(java: Java, jar: Path, options: Sequence[str]) -> tuple[str, ...]:
    return (str(java.program), *_JAVA_OPTIONS, *options, "-jar", str(jar))


KIND = ServerKind(
    name="conductor",
    title="Conductor",
    version=VERSION,
    prepare=ensure_conductor,
    is_prepared=is_cached,
    server=conductor_server,
)
