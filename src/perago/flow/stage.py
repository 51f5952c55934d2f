"""Step 8: put what changed on a private branch, and commit it. Step 11: delete that branch."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perago.errors import BranchNotFoundError, StoreError, StoreRefusedError
from perago.model.attempt import AttemptStep
from perago.model.outcome import StagedWorkspace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.flow.runtime import Steps
    from perago.model.attempt import Execution
    from perago.model.workspace import ChangeSet, WorkspaceRef
    from perago.ports.store import Store

DELETE_TIMEOUT_SECONDS = 10.0
"""Cleaning up must not eat the time that is needed to report."""


@dataclass(slots=True)
class StagingArea:
    """A staging branch that may or may not exist yet; ``is_left``: that can't be told any more."""

    store: Store
    steps: Steps
    execution: Execution
    workspace: WorkspaceRef
    attempted: bool = field(default=False, init=False)
    is_open: bool = field(default=False, init=False)
    is_left: bool = field(default=False, init=False)

    def branch_off(self) -> None:
        """Make the branch, at the input commit."""
        branch = self.execution.staging_branch
        self.attempted = True
        with self.steps.step(AttemptStep.STAGE_BRANCH, then="staging.branch_created") as note:
            self.store.create_branch(
                self.workspace.repository, branch, self.workspace.ref, hidden=True
            )
            note(branch=branch)
        self.is_open = True

    def stage(self, changes: ChangeSet) -> StagedWorkspace:
        """Branch off, unless a body that writes there had it done; apply the changes, commit.

        The commit's only parent is the input commit. Raises StoreError; what was begun by then is
        removed with the area.
        """
        repository, branch = self.workspace.repository, self.execution.staging_branch
        if not self.is_open:
            self.branch_off()
        with self.steps.step(AttemptStep.STAGE_UPLOAD, then="staging.uploaded") as note:
            moved = self.store.upload(
                repository,
                branch,
                changes.uploads,
                self.steps.progress_of(AttemptStep.STAGE_UPLOAD),
            )
            self.store.delete_objects(repository, branch, changes.deletes)
            note(
                uploaded=len(changes.uploads),
                deleted=len(changes.deletes),
                objects_moved=moved.objects,
                bytes_moved=moved.bytes,
            )
            if changes.staged:
                note(staged=len(changes.staged))
        with self.steps.step(AttemptStep.STAGE_COMMIT, then="staging.committed") as note:
            commit = self.store.commit(
                repository,
                branch,
                message=commit_message(self.execution),
                metadata=self.execution.metadata() | {"perago.input_ref": self.workspace.ref},
            )
            note(commit=commit.id)
        if not commit.is_only_child_of(self.workspace.ref):
            raise StoreRefusedError(
                f"staging commit {commit.id} is not the only child of {self.workspace.ref}: "
                f"something else wrote to {branch}"
            )
        return StagedWorkspace(repository, branch, commit.id, commit.tree)

    def discard(self) -> None:
        """Delete the branch, whether or not creating it was ever confirmed. Never raises."""
        if not self.attempted:
            return
        branch = self.execution.staging_branch
        try:
            self.store.delete_branch(
                self.workspace.repository, branch, timeout=DELETE_TIMEOUT_SECONDS
            )
        except BranchNotFoundError:
            pass
        except StoreError as error:
            self.is_left = True
            self.steps.journal.event("cleanup.failed", branch=branch, error=error.message)
        self.steps.reached("staging.deleted")


@contextmanager
def staging_area(
    store: Store, steps: Steps, execution: Execution, workspace: WorkspaceRef
) -> Iterator[StagingArea]:
    """A staging area that is gone afterwards, whatever happened in it (but a crash)."""
    area = StagingArea(store, steps, execution, workspace)
    try:
        yield area
    except Exception:
        area.discard()
        raise
    area.discard()


def commit_message(execution: Execution) -> str:
    attempt = execution.attempt
    return attempt.task_name + (f", retry {attempt.retry_count}" if attempt.retry_count else "")
