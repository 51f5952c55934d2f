"""An answer was lost, or may be about an earlier copy of our request: look what really happened."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.model.commit import Commit
    from perago.model.outcome import StagedWorkspace
    from perago.model.workspace import WorkspaceRef
    from perago.ports.store import Store

SEARCH_LIMIT = 1000
"""Commits to look through. A branch that moved further in one publish is unknown ground."""


@dataclass(frozen=True, slots=True)
class Landing:
    """What a look at the target branch found of one execution's publication."""

    head: Commit
    found: Commit | None
    proven_absent: bool


def find_landing(store: Store, workspace: WorkspaceRef, execution_id: str) -> Landing:
    """Search the target branch, from its head back to the input commit, for our own commit.

    Absence is only proven when the search reached the input commit.
    """
    commits = iter(store.history(workspace.repository, workspace.branch, limit=SEARCH_LIMIT))
    head = current = next(commits)
    while current.id != workspace.ref:
        if current.metadata.get("perago.execution_id") == execution_id:
            return Landing(head, current, proven_absent=False)
        following = next(commits, None)
        if following is None:
            return Landing(head, None, proven_absent=False)
        current = following
    return Landing(head, None, proven_absent=True)


def landed_right(commit: Commit, workspace: WorkspaceRef, staged: StagedWorkspace) -> bool:
    """Whether a published commit is exactly the staged state, directly on the input commit."""
    return commit.is_only_child_of(workspace.ref) and commit.tree == staged.tree
