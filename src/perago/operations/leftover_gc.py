"""All that dead executions left on this machine: their directories and their staging branches."""

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
"""How long ago an execution has to have begun before nobody's directory means nobody's branch.

An execution holds its directory before it makes its branch; what works without one, such as an
import, is over sooner, and fails without harm if it isn't."""
SHARED_ORPHAN_SECONDS = 7 * 24 * 3600.0
"""The same where attempts on other machines, whose directories aren't here, use the store too.

They count from the start of their body, so none may take as long."""
ENDED_SECONDS = 3600.0
"""How long after its task ended an execution may still be at it, on a machine that was away."""
EndOfTask: TypeAlias = "Callable[[str], float | None]"
"""When a task ended, None while it hasn't; raises UnknownAttemptError for one that isn't known."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What was removed, or would have been: directories, and (repository, branch) pairs.

    ``too_young`` are the branches that nobody here knows, and that may be somebody's elsewhere.
    ``problems`` says in words which repositories couldn't be looked into, and what couldn't be
    removed: all of that is left as it is.
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
    """Remove attempt directories whose process is gone, and staging branches that are nobody's.

    A branch is nobody's if a dead directory names it, or if no directory here belongs to it and
    its task ended long ago or, where that isn't known, its execution began more than
    ``orphan_seconds`` ago. Raises StoreError if the repositories can't be listed, and
    OrchestratorError if it can't say what became of a task; trouble with one repository leaves the
    others to be seen to.
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
    """Whether an execution that isn't on this machine can't be going on anywhere else either."""
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
        with suppress(BranchNotFoundError):  # gone with its directory, or by its owner just now
            store.delete_branch(repository, name)
    except StoreError as error:
        problems.append(f"{repository}/{name}: {error.message}")
        return False
    return True
