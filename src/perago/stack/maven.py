"""Fetch a jar from Maven repositories and check its hash.

Maven is tried first, because it knows the machine's mirrors. Without Maven, jgo is used: a light
client from the Python package index.
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
    """A jar's coordinates, and its expected hash and size."""

    group: str
    name: str
    version: str
    classifier: str
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.classifier}.jar"


def fetch(artifact: Artifact, target: Path, on_line: OnLine) -> Path:
    """Return the jar in the user's Maven repository, else fetch it into ``target``.

    Raises RuntimeConfigError if it can't be fetched or has another hash.
    """
    local = _in_local_repository(artifact)
    if local.is_file() and sha256_of(local) == artifact.sha256:
        return local
    fetched = target / artifact.file_name
    if not _fetch_with_maven(artifact, target, on_line):
        _fetch_with_jgo(artifact, target, on_line)
    if (found := sha256_of(fetched)) != artifact.sha256:
        raise RuntimeConfigError(
            f"{artifact.file_name} isn't the published one: its sha256 is {found}, "
            f"not {artifact.sha256}",
            fix="something between this machine and the repository changed it: try again, or "
            "from another network",
        )
    return fetched


def _in_local_repository(artifact: Artifact) -> Path:
    repository = Path("~/.m2/repository").expanduser().joinpath(*artifact.group.split("."))
    return repository / artifact.name / artifact.version / artifact.file_name


def _fetch_with_maven(artifact: Artifact, target: Path, on_line: OnLine) -> bool:
    """Return False if there is no Maven, or it can't fetch the jar."""
    if (maven := shutil.which("mvn")) is None:
        return False
    coordinates = f"{artifact.group}:{artifact.name}:{artifact.version}:jar:{artifact.classifier}"
    try:
        with _progress_shown(artifact, target, on_line):
            run(
                [
                    *(maven, "--batch-mode", "--quiet", f"-Dmaven.repo.local={target / 'maven'}"),
                    *(_COPY_GOAL, f"-Dartifact={coordinates}", f"-DoutputDirectory={target}"),
                ],
                doing=f"fetching {artifact.file_name} with Maven",
                fix=_NO_JAR,
                environment=os.environ,
                directory=target,
            )
    except RuntimeConfigError:
        on_line(f"Maven can't fetch {artifact.file_name}: trying without it")
        return False
    return True


def _fetch_with_jgo(artifact: Artifact, target: Path, on_line: OnLine) -> None:
    on_line("fetching jgo, a Maven client, from the Python package index")
    client = target / "jgo"
    client.mkdir()
    install_wheels(files("perago.stack") / "maven.txt", client, what="jgo", fix=_NO_JAR)
    script_file = as_file(files("perago.stack") / "jgo_download.py")
    with script_file as script, _progress_shown(artifact, target, on_line):
        run(
            [
                # -P: the modules beside the script must not hide packages of the same name.
                *(sys.executable, "-P", script, artifact.group, artifact.name, artifact.version),
                *(artifact.classifier, target / "repository", target / artifact.file_name),
            ],
            doing=f"fetching {artifact.file_name}",
            fix=_NO_JAR,
            environment={**_with_pips_certificates(), "PYTHONPATH": str(client)},
            directory=target,
        )


def _with_pips_certificates() -> dict[str, str]:
    """A user who gave pip a CA bundle needs it here as well."""
    bundle = {"REQUESTS_CA_BUNDLE": cert} if (cert := os.environ.get("PIP_CERT")) else {}
    return {**bundle, **os.environ}


@contextmanager
def _progress_shown(artifact: Artifact, target: Path, on_line: OnLine) -> Iterator[None]:
    """Show every few seconds the size of the largest file in ``target``, which is the jar."""
    doing = f"fetching {artifact.name} {artifact.version}"
    size = round(artifact.size / _MEGABYTE)
    on_line(f"{doing}: {size} MB, once for this machine")
    done = threading.Event()

    def show() -> None:
        while not done.wait(_SECONDS_BETWEEN_LINES):
            on_line(f"{doing}: {round(_largest(target) / _MEGABYTE)} of {size} MB")

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _largest(directory: Path) -> int:
    largest = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):  # files come and go
                largest = max(largest, Path(folder, name).lstat().st_size)
    return largest
