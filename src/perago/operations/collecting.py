"""All that dead executions left on this machine: their directories and their staging branches."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import BranchNotFoundError, StoreAccessError
from perago.flow.recover import collect, leftovers
from perago.model.attempt import STAGING_PREFIX, began_at, execution_id_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perago.ports.store import Store

SHARED_ORPHAN_SECONDS = 24 * 3600.0
"""The same where attempts on other machines, whose directories aren't here, use the store too."""

ORPHAN_SECONDS = 3600.0
"""How old a staging branch has to be before nobody's directory means nobody's branch.

An execution holds its directory before it makes its branch; what works without one, such as an
import, is over sooner, and fails without harm if it isn't."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or would have been: directories, and (repository, branch) pairs.

    ``too_young`` are the branches that nobody here knows, and that may be somebody's elsewhere.
    """

    directories: tuple[Path, ...]
    branches: tuple[tuple[str, str], ...]
    too_young: tuple[tuple[str, str], ...]


def collect_leftovers(
    store: Store,
    attempts: Path,
    *,
    now: float,
    dry_run: bool = False,
    orphan_seconds: float = ORPHAN_SECONDS,
) -> Collected:
    """Remove attempt directories whose process is gone, and staging branches that are nobody's.

    A branch is nobody's if a dead directory names it, or if it is older than ``orphan_seconds`` and
    no directory here belongs to its execution.
    """
    dead = list(leftovers(attempts))
    named = {(leftover.repository, leftover.staging_branch) for leftover in dead}
    known = {path.name.rpartition("-")[2] for path in attempts.glob("*")}
    alive = known - {leftover.execution_id for leftover in dead}
    branches: list[tuple[str, str]] = []
    too_young: list[tuple[str, str]] = []
    for repository, name, execution in _staging_branches(store):
        if (repository, name) in named:
            branches.append((repository, name))
        elif execution not in alive:
            old = now - began_at(execution) > orphan_seconds
            (branches if old else too_young).append((repository, name))
    if not dry_run:
        dead = [leftover for leftover in dead if collect(store, leftover)]
        for repository, name in branches:
            _delete(store, repository, name)
    paths = tuple(leftover.path for leftover in dead)
    return Collected(paths, tuple(branches), tuple(too_young))


def _staging_branches(store: Store) -> Iterator[tuple[str, str, str]]:
    for repository in store.repositories():
        with suppress(StoreAccessError):  # what we may not look into, we can't have left things in
            for branch in store.branches(repository, prefix=STAGING_PREFIX):
                execution = execution_id_of(branch.name)
                if execution is not None:
                    yield repository, branch.name, execution


def _delete(store: Store, repository: str, name: str) -> None:
    with suppress(BranchNotFoundError):  # gone with its directory, or by its owner just now
        store.delete_branch(repository, name)
