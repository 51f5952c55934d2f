"""Running the programs that fetch and build: their lines as they come, their end as an error."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_TAIL_LINES = 15
_USER_IN_ADDRESS = re.compile(r"(://)[^/@\s]+@")


def run(
    command: Sequence[str | Path],
    *,
    doing: str,
    fix: str,
    environment: Mapping[str, str],
    directory: Path,
    on_line: Callable[[str], None] = lambda _line: None,
) -> None:
    """Run to the end; ``on_line`` gets what it prints, on either stream, line by line.

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
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        shown = "\n".join(f"    {_without_user(line)}" for line in tail)
        raise RuntimeConfigError(f"{doing} failed; the last it said was\n{shown}", fix=fix)


def _without_user(line: str) -> str:
    """A private registry's address may carry a password."""
    return _USER_IN_ADDRESS.sub(r"\1…@", line)
