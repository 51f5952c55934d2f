"""The cache of tools that were fetched or built once for this machine.

A cached tool is either complete and checked, or absent. The programs that fetch and build tools
are run by :func:`run`; those that come as Python wheels are installed by :func:`install_wheels`.
"""

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

OnLine = Callable[[str], None]
"""Called with each line of progress that a person may want to see."""

REACH_AN_INDEX = (
    "let pip reach a package index (PIP_INDEX_URL, PIP_CERT and HTTPS_PROXY are obeyed)"
)
_MANIFEST = "manifest.json"
_TAIL_LINES = 15
_USER_IN_ADDRESS = re.compile(r"(://)[^/@\s]+@")


@dataclass(frozen=True, slots=True)
class Tool:
    """A directory of the cache, named by version and platform, and the programs in it.

    ``size_checked`` is a glob pattern of further files, too many to hash at each use: of these
    only the sizes are checked.
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


def ensure(tool: Tool, make: Callable[[Path], None], on_line: OnLine) -> Path:
    """Return the tool's directory; ``make`` fills it first if the tool is missing or damaged.

    ``make`` gets an empty directory beside the final one, which is renamed when it is complete: an
    interrupted ``make`` leaves nothing that could be taken for the tool. Processes that want the
    same tool wait for each other. Raises RuntimeConfigError if the cache can't be written.
    """
    if cache_problem(tool) is None:
        return tool.directory
    cache, name = tool.directory.parent, tool.directory.name
    try:
        with locked(
            cache / f"{name}.lock", lambda: on_line(f"waiting: another process is getting {name}")
        ):
            if problem := cache_problem(tool):
                if tool.directory.exists():
                    on_line(f"{name} is damaged, getting it again: {problem}")
                _replace(tool, make)
    except OSError as error:
        raise RuntimeConfigError(
            f"{name} can't be put into {cache}: {error}",
            fix="make room there, or set PERAGO_TOOLS to a directory you can write",
        ) from error
    return tool.directory


def cache_problem(tool: Tool) -> str | None:
    """Say why the cached tool can't be used: it is missing or damaged. None if it can be used.

    Every program is hashed, so that a damaged one is never started.
    """
    try:
        manifest = json.loads((tool.directory / _MANIFEST).read_text(encoding="utf-8"))
        digests = {name: manifest["sha256"][name] for name in tool.programs}
        sizes = dict(manifest["bytes"]) if tool.size_checked else {}
    except FileNotFoundError:
        return "it is missing"
    except (ValueError, KeyError, TypeError, OSError):
        return f"{tool.directory / _MANIFEST} can't be read"
    for name, digest in digests.items():
        try:
            found = sha256_of(tool.directory / name)
        except OSError as error:
            return f"{tool.directory / name}: {error.strerror}"
        if found != digest:
            return f"{tool.directory / name} isn't what was put there (sha256 {found[:12]}…)"
    for name, expected in sizes.items():
        try:
            size = (tool.directory / name).stat().st_size
        except OSError as error:
            return f"{tool.directory / name}: {error.strerror}"
        if size != expected:
            return f"{tool.directory / name} isn't what was put there ({size} of {expected} bytes)"
    return None


def _replace(tool: Tool, make: Callable[[Path], None]) -> None:
    final = tool.directory
    prefix = f".{final.name}."
    for left in final.parent.glob(f"{prefix}*"):
        # Left by a killed process: we hold the lock of this tool.
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(
        prefix=prefix, dir=final.parent, ignore_cleanup_errors=True
    ) as scratch:
        made = Path(scratch) / "made"
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
            final.rename(Path(scratch) / "damaged")
        made.rename(final)


def _sizes(directory: Path, pattern: str) -> dict[str, int]:
    found = sorted(directory.glob(pattern))
    return {str(path.relative_to(directory)): path.stat().st_size for path in found}


def sha256_of(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def install_wheels(pinned: Traversable, target: Path, *, what: str, fix: str) -> None:
    """Install the wheels that the requirements file ``pinned`` lists into ``target``.

    ``what`` names them in messages. Raises RuntimeConfigError with ``fix`` if a wheel can't be
    fetched or doesn't have the pinned hash.
    """
    # A throw-away environment: the one we run in may have no pip, and is not ours to install into.
    pip = target / "pip"
    run(
        [sys.executable, "-m", "venv", pip],
        doing=f"making a Python environment to fetch {what} with",
        fix=f"install Python's venv module (Debian: python3-venv), or {fix}",
        environment=os.environ,
        directory=target,
    )
    with as_file(pinned) as requirements:
        run(
            [
                *(pip / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-input"),
                *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
                *("--require-hashes", "--target", target, "--requirement", requirements),
            ],
            doing=f"fetching {what}",
            fix=fix,
            environment=os.environ,
            directory=target,
        )
    shutil.rmtree(pip)


def run(
    command: Sequence[str | Path],
    *,
    doing: str,
    fix: str,
    environment: Mapping[str, str],
    directory: Path,
    on_output: Callable[[str], None] = lambda _line: None,
) -> None:
    """Run a program to its end; ``on_output`` gets each line that it prints, on either stream.

    Raises RuntimeConfigError with the last lines of output if the program fails: ``doing`` says
    what didn't work, ``fix`` what a person can do. An interrupt ends the program too.
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
        raise RuntimeConfigError(f"{doing} failed; its last output was\n{shown}", fix=fix)


def _without_user(line: str) -> str:
    """Hide the user in an address: that of a private registry may carry a password."""
    return _USER_IN_ADDRESS.sub(r"\1…@", line)
