"""All that dead executions left on this machine: their directories and their staging branches."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import BranchNotFoundError
from perago.flow.recover import collect, leftovers
from perago.model.attempt import STAGING_PREFIX, began_at, execution_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.ports.store import Store

ORPHAN_SECONDS = 3600.0
"""How old a staging branch has to be before nobody's directory means nobody's branch.

An execution holds its directory before it makes its branch; what works without one, such as an
import, is over sooner, and fails without harm if it isn't."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or would have been: directories, and (repository, branch) pairs."""

    directories: tuple[Path, ...]
    branches: tuple[tuple[str, str], ...]


def collect_leftovers(
    store: Store, attempts: Path, *, now: float, dry_run: bool = False
) -> Collected:
    """Remove attempt directories whose process is gone, and staging branches that are nobody's.

    A branch is nobody's if a dead directory names it, or if it is older than
    :data:`ORPHAN_SECONDS` and no directory here belongs to its execution.
    """
    dead = list(leftovers(attempts))
    named = {(leftover.repository, leftover.staging_branch) for leftover in dead}
    known = {path.name.rpartition("-")[2] for path in attempts.glob("*")}
    alive = known - {leftover.execution_id for leftover in dead}
    branches = [
        (repository, name)
        for repository, name, execution in _staging_branches(store)
        if (repository, name) in named
        or (execution not in alive and now - began_at(execution) > ORPHAN_SECONDS)
    ]
    if not dry_run:
        dead = [leftover for leftover in dead if collect(store, leftover)]
        for repository, name in branches:
            _delete(store, repository, name)
    return Collected(tuple(leftover.path for leftover in dead), tuple(branches))


def _staging_branches(store: Store) -> Iterator[tuple[str, str, str]]:
    for repository in store.repositories():
        for branch in store.branches(repository, prefix=STAGING_PREFIX):
            execution = execution_id_of(branch.name)
            if execution is not None:
                yield repository, branch.name, execution


def _delete(store: Store, repository: str, name: str) -> None:
    with suppress(BranchNotFoundError):  # gone with its directory, or by its owner just now
        store.delete_branch(repository, name)
