"""What an execution that died leaves behind, found and removed; never one that might be alive."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import BranchNotFoundError, RepositoryNotFoundError
from perago.model.keys import MARKER_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.ports.store import Store


@dataclass(frozen=True, slots=True)
class Leftover:
    """A directory whose process is gone, and the branch that process may have made."""

    path: Path
    execution_id: str
    repository: str
    staging_branch: str


def leftovers(root: Path) -> Iterator[Leftover]:
    """Attempt directories below ``root`` that no living process holds."""
    for marker in sorted(root.glob(f"*/{MARKER_NAME}")):
        if _is_held(marker):
            continue
        try:
            content = json.loads(marker.read_bytes())
        except (ValueError, FileNotFoundError):  # died writing it, before it began anything else
            content = {}
        yield Leftover(
            marker.parent,
            content.get("execution_id", ""),
            content.get("repository", ""),
            content.get("staging_branch", ""),
        )


def collect(store: Store, leftover: Leftover) -> None:
    """Delete its staging branch, then its directory: in that order, so that a crash in between
    leaves the directory, which still names the branch.
    """
    if leftover.staging_branch:
        try:
            store.delete_branch(leftover.repository, leftover.staging_branch)
        except (BranchNotFoundError, RepositoryNotFoundError):
            pass
    shutil.rmtree(leftover.path, ignore_errors=True)


def _is_held(marker: Path) -> bool:
    try:
        descriptor = os.open(marker, os.O_RDWR)
    except FileNotFoundError:  # removed by its owner just now
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
