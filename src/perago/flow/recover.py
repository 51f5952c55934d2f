"""What an execution that died leaves behind, found and removed; never one that might be alive."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.errors import BranchNotFoundError, RepositoryNotFoundError
from perago.flow.directory import is_attempt_directory, remove_marker_last
from perago.model.keys import MARKER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.ports.store import Store

NAMELESS_SECONDS = 60.0
"""How long a directory may stand without its marker, between being made and being used."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A directory whose process is gone, and the branches that process may have made."""

    path: Path
    execution_id: str
    repository: str
    branches: tuple[str, ...]


def leftovers(root: Path) -> Iterator[Leftover]:
    """Attempt directories below ``root`` that no living process holds.

    Only directories named and furnished as ours are looked at: the root may hold anything else.
    One without a readable marker was being made or removed when its process died. It is only
    certain after a while that nobody is at it still.
    """
    for path in sorted(root.glob("*/")):
        marker = path / MARKER_NAME
        if not is_attempt_directory(path) or _is_held(marker):
            continue
        content = _read(marker)
        if content or _untouched_for(path) > NAMELESS_SECONDS:
            yield Leftover(
                path,
                content.get("execution_id", ""),
                content.get("repository", ""),
                tuple(content.get("branches", ())),
            )


def _untouched_for(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:  # removed by its owner just now
        return 0.0


def _read(marker: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(marker.read_bytes())
    except (OSError, ValueError):
        return {}
    return content


def collect(store: Store, leftover: Leftover) -> bool:
    """Delete its branches, then its directory; whether the directory is gone.

    In that order: a crash in between leaves the directory, which still names the branches.
    """
    for branch in leftover.branches:
        with suppress(BranchNotFoundError, RepositoryNotFoundError):
            store.delete_branch(leftover.repository, branch)
    with suppress(OSError):  # it stays findable, or somebody else was quicker
        remove_marker_last(leftover.path)
    return not leftover.path.exists()


def _is_held(marker: Path) -> bool:
    try:
        descriptor = os.open(marker, os.O_RDWR)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's, and theirs to collect
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
