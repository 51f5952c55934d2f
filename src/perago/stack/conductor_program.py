"""Conductor's program: a Java, the server's jars, and an archive that lets them start quickly."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.machine.fetching import run
from perago.machine.java import environment, find_java, installed_java
from perago.machine.tools import Tool, ensure, problem_with
from perago.stack import maven
from perago.stack.server import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perago.machine.java import Java
    from perago.machine.tools import Tell

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
_SERVER = Tool("conductor", VERSION, (_JAR,), weighed="server/lib/*.jar")
_ARCHIVE = "classes.jsa"
_IN_DOCKER = "run the server in Docker: compose.yaml"
_NO_START = f"set JAVA_HOME to another Java; or {_IN_DOCKER}"

# The collector that needs least memory, and an end with a reason instead of one that drags on.
# No file for other programs to look in, which would be outside the server's directory.
_JAVA_OPTIONS = (
    "-Xmx768m",
    "-XX:+UseSerialGC",
    "-XX:+ExitOnOutOfMemoryError",
    "-XX:-UsePerfData",
)


@dataclass(frozen=True, slots=True)
class ConductorProgram:
    """``archive`` holds the jars' classes as this Java has them in memory, ready to be mapped."""

    java: Java
    jar: Path
    archive: Path

    def command(self, *java_options: str) -> tuple[str, ...]:
        """What starts it; arguments of the server may follow."""
        shared = f"-XX:SharedArchiveFile={self.archive}"
        return _command(self.java, self.jar, (shared, *java_options))


def ensure_conductor(tell: Tell) -> ConductorProgram:
    """The program: from the cache, else fetched, unpacked and started once now.

    Raises RuntimeConfigError if a Java or the server can't be had.
    """
    java = find_java(OLDEST_JAVA, tell, instead=_IN_DOCKER)
    jar = ensure(_SERVER, lambda room: _unpack(java, room, tell), tell) / _JAR
    archive = ensure(_archive_of(java), lambda room: _start_once(java, jar, room, tell), tell)
    return ConductorProgram(java, jar, archive / _ARCHIVE)


def is_cached() -> bool:
    """Whether :func:`ensure_conductor` has nothing to fetch or make."""
    java = installed_java(OLDEST_JAVA)
    if java is None:
        return False
    return all(problem_with(tool) is None for tool in (_SERVER, _archive_of(java)))


def _archive_of(java: Java) -> Tool:
    return Tool("conductor-archive", f"{VERSION}-java-{java.feature}-{java.build}", (_ARCHIVE,))


def _unpack(java: Java, room: Path, tell: Tell) -> None:
    """Take the jar of jars apart: Java reads plain ones sooner, and can archive only those."""
    download = room / "download"
    download.mkdir()
    boot = maven.fetch(_ARTIFACT, download, tell)
    tell(f"unpacking Conductor {VERSION}")
    run(
        [
            *(java.program, "-Djarmode=tools", "-jar", boot, "extract"),
            *("--destination", room / "server", "--application-filename", "conductor-server.jar"),
        ],
        doing=f"unpacking Conductor {VERSION}",
        fix=_NO_START,
        environment=environment(),
        directory=room,
    )
    shutil.rmtree(download)


def _start_once(java: Java, jar: Path, room: Path, tell: Tell) -> None:
    """Start it as far as it would serve, and have Java write down what it has loaded by then."""
    tell(f"starting Conductor {VERSION} for the first time: about a minute, once for this Java")
    place = room / "first"
    place.mkdir()
    options = (
        f"-XX:ArchiveClassesAtExit={room / _ARCHIVE}",
        "-Dspring.context.exit=onRefresh",
        f"-Djava.io.tmpdir={place}",
    )
    run(
        [*_command(java, jar, options), "--server.port=0", f"--server.address={LOOPBACK}"],
        doing=f"starting Conductor {VERSION} for the first time",
        fix=_NO_START,
        environment=environment(),
        directory=place,
    )
    shutil.rmtree(place)
    # A Java that can't make one starts as well without: an empty one is passed over.
    (room / _ARCHIVE).touch()


def _command(java: Java, jar: Path, options: Sequence[str]) -> tuple[str, ...]:
    return (str(java.program), *_JAVA_OPTIONS, *options, "-jar", str(jar))
