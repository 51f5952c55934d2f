"""A jar from Maven repositories, by whatever client there is: its hash says whether it is the one.

Maven is asked first, since it knows the machine's mirrors; without one a light client, jgo, comes
from the Python package index.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.toolchain.cache import REACH_AN_INDEX, install_wheels, run, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.toolchain.cache import OnLine

_COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SECONDS_BETWEEN_LINES = 5.0
_MEGABYTE = 1_000_000
_NO_JAR = (
    "let Maven reach a repository (its settings.xml is obeyed), or without Maven: "
    f"{REACH_AN_INDEX}; HTTPS_PROXY, REQUESTS_CA_BUNDLE and the repositories in jgo.conf are "
    "obeyed for the jar; or run the server in Docker: compose.yaml"
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """A jar by its coordinates, and what it has to be."""

    group: str
    name: str
    version: str
    classifier: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.classifier}.jar"


def fetch(artifact: Artifact, room: Path, on_line: OnLine) -> Path:
    """The jar: the one in the user's Maven repository, else brought into ``room``.

    Raises RuntimeConfigError if nobody can bring it, or what comes isn't it.
    """
    kept = _kept_by_maven(artifact)
    if kept.is_file() and sha256_of(kept) == artifact.sha256:
        return kept
    brought = room / artifact.file_name
    if not _bring_by_maven(artifact, room, on_line):
        _bring_by_jgo(artifact, room, on_line)
    if (found := sha256_of(brought)) != artifact.sha256:
        raise RuntimeConfigError(
            f"{artifact.file_name} isn't the published one: its sha256 is {found}, "
            f"not {artifact.sha256}",
            fix="something between this machine and the repository changed it: try again, or "
            "from another network",
        )
    return brought


def _kept_by_maven(artifact: Artifact) -> Path:
    repository = Path("~/.m2/repository").expanduser().joinpath(*artifact.group.split("."))
    return repository / artifact.name / artifact.version / artifact.file_name


def _bring_by_maven(artifact: Artifact, room: Path, on_line: OnLine) -> bool:
    """Whether this machine has a Maven that could."""
    if (maven := shutil.which("mvn")) is None:
        return False
    coordinates = f"{artifact.group}:{artifact.name}:{artifact.version}:jar:{artifact.classifier}"
    try:
        with _bytes_told(artifact, room, on_line):
            run(
                [
                    *(maven, "--batch-mode", "--quiet", f"-Dmaven.repo.local={room / 'maven'}"),
                    *(_COPY_GOAL, f"-Dartifact={coordinates}", f"-DoutputDirectory={room}"),
                ],
                doing=f"fetching {artifact.file_name} with Maven",
                fix=_NO_JAR,
                environment=os.environ,
                directory=room,
            )
    except RuntimeConfigError:
        on_line(f"Maven can't fetch {artifact.file_name}: trying without it")
        return False
    return True


def _bring_by_jgo(artifact: Artifact, room: Path, on_line: OnLine) -> None:
    on_line("fetching jgo, a Maven client, from the Python package index")
    client = room / "jgo"
    client.mkdir()
    install_wheels(files("perago.stack") / "maven.txt", client, what="jgo", fix=_NO_JAR)
    script_file = as_file(files("perago.stack") / "jgo_download.py")
    with script_file as script, _bytes_told(artifact, room, on_line):
        run(
            [
                # Our modules beside the script must not stand in the way of others' names.
                *(sys.executable, "-P", script, artifact.group, artifact.name, artifact.version),
                *(artifact.classifier, room / "repository", room / artifact.file_name),
            ],
            doing=f"fetching {artifact.file_name}",
            fix=_NO_JAR,
            environment={**_with_pips_certificates(), "PYTHONPATH": str(client)},
            directory=room,
        )


def _with_pips_certificates() -> dict[str, str]:
    """Who told pip about an authority of their own has told us."""
    known = {"REQUESTS_CA_BUNDLE": cert} if (cert := os.environ.get("PIP_CERT")) else {}
    return {**known, **os.environ}


@contextmanager
def _bytes_told(artifact: Artifact, room: Path, on_line: OnLine) -> Iterator[None]:
    """Say every few seconds how large the largest file in ``room`` has become: it is the jar."""
    words = f"fetching {artifact.name} {artifact.version}"
    size = round(artifact.size / _MEGABYTE)
    on_line(f"{words}: {size} MB, once for this machine")
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_SECONDS_BETWEEN_LINES):
            on_line(f"{words}: {round(_largest(room) / _MEGABYTE)} of {size} MB")

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _largest(directory: Path) -> int:
    largest = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # files come and go
                largest = max(largest, Path(folder, name).lstat().st_size)
    return largest
