"""Removes what dead executions left: attempt directories and staging branches."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from perago.errors import BranchNotFoundError, StoreError, UnknownAttemptError
from perago.flow.attempt_directory import collect, leftovers
from perago.model.attempt import STAGING_PREFIX, began_at, execution_id_of, task_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.flow.attempt_directory import Leftover
    from perago.ports.store import Store


ORPHAN_SECONDS = 3600.0
"""The age from which a staging branch without a directory on this machine counts as orphaned.

An attempt creates its directory before its branch. An import has no directory; it takes less time,
and fails without harm if its branch is deleted."""
SHARED_ORPHAN_SECONDS = 7 * 24 * 3600.0
"""The same for a store that other machines use, whose directories this machine can't see.

Age counts from the start of the body, so no attempt may take longer."""
ENDED_SECONDS = 3600.0
"""How long an execution may go on after its task ended, on a machine that lost its connection."""
EndOfTask: TypeAlias = "Callable[[str], float | None]"
"""When a task ended; None while it runs. Raises UnknownAttemptError for an unknown task."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or in a dry run would be: directories, and (repository, branch) pairs.

    ``too_young`` are branches that may belong to an execution on another machine. ``problems`` are
    sentences about repositories that couldn't be read and leftovers that couldn't be removed.
    """

    directories: tuple[Path, ...]
    branches: tuple[tuple[str, str], ...]
    too_young: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]


def collect_leftovers(
    store: Store,
    attempts: Path,
    *,
    now: float,
    dry_run: bool = False,
    orphan_seconds: float = ORPHAN_SECONDS,
    end_of_task: EndOfTask | None = None,
) -> Collected:
    """Remove attempt directories of dead processes, and orphaned staging branches.

    A branch is orphaned if a dead directory names it; or if no directory on this machine belongs
    to it, and its task ended more than ENDED_SECONDS ago. If ``end_of_task`` is None or doesn't
    know the task, the execution must have begun more than ``orphan_seconds`` ago. Raises
    StoreError if the repositories can't be listed, and OrchestratorError if ``end_of_task`` does;
    a problem with one repository doesn't stop the others.
    """
    problems: list[str] = []
    dead = list(leftovers(attempts))
    named = {(left.repository, branch) for left in dead for branch in left.branches}
    known = {path.name.rpartition("-")[2] for path in attempts.glob("*")}
    alive = known - {leftover.execution_id for leftover in dead}
    branches: list[tuple[str, str]] = []
    too_young: list[tuple[str, str]] = []
    for repository, name, execution in _staging_branches(store, problems):
        if (repository, name) in named:
            branches.append((repository, name))
        elif execution not in alive:
            over = _is_over(name, execution, now, orphan_seconds, end_of_task)
            (branches if over else too_young).append((repository, name))
    if not dry_run:
        dead = [leftover for leftover in dead if _collect(store, leftover, problems)]
        branches = [each for each in branches if _delete(store, *each, problems)]
    paths = tuple(leftover.path for leftover in dead)
    return Collected(paths, tuple(branches), tuple(too_young), tuple(problems))


def _is_over(
    branch: str,
    execution: str,
    now: float,
    orphan_seconds: float,
    end_of_task: EndOfTask | None,
) -> bool:
    """Whether an execution without a directory here can't be running elsewhere either."""
    task_id = task_id_of(branch)
    if end_of_task is not None and task_id is not None:
        with suppress(UnknownAttemptError):
            ended_at = end_of_task(task_id)
            return ended_at is not None and now - ended_at > ENDED_SECONDS
    return now - began_at(execution) > orphan_seconds


def _staging_branches(store: Store, problems: list[str]) -> Iterator[tuple[str, str, str]]:
    for repository in store.repositories():
        try:
            for branch in store.branches(repository, prefix=STAGING_PREFIX):
                execution = execution_id_of(branch.name)
                if execution is not None:
                    yield repository, branch.name, execution
        except StoreError as error:
            problems.append(f"{repository}: {error.message}")


def _collect(store: Store, leftover: Leftover, problems: list[str]) -> bool:
    try:
        return collect(store, leftover)
    except StoreError as error:
        problems.append(f"{leftover.path}: {error.message}")
        return False


def _delete(store: Store, repository: str, name: str, problems: list[str]) -> bool:
    try:
        with suppress(BranchNotFoundError):  # removed with its directory, or by its owner
            store.delete_branch(repository, name)
    except StoreError as error:
        problems.append(f"{repository}/{name}: {error.message}")
        return False
    return True
