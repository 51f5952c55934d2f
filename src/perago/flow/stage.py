"""Put what changed on a private branch and commit it there; delete that branch afterwards."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from perago.errors import BranchNotFoundError, StoreError, StoreRefusedError
from perago.model.attempt import AttemptStep
from perago.model.outcome import StagedWorkspace

if TYPE_CHECKING:
    from perago.flow.runtime import AttemptContext
    from perago.model.attempt import Execution
    from perago.model.workspace import ChangeSet, WorkspaceRef

DELETE_TIMEOUT_SECONDS = 10.0
"""Cleaning up must not use up the time that reporting needs."""


@dataclass(slots=True)
class StagingArea:
    """The execution's staging branch, which is created when it is first needed.

    As a context manager it deletes the branch at the end, whatever happened, except in a crash.
    ``may_remain`` says that deleting it failed: the branch may exist after the attempt.
    """

    context: AttemptContext
    workspace: WorkspaceRef
    may_remain: bool = field(default=False, init=False)
    _was_requested: bool = field(default=False, init=False)
    _is_open: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.discard()

    @property
    def branch(self) -> str:
        """The name of the branch."""
        return self.context.execution.staging_branch

    def open_for_body(self) -> str:
        """Create the branch for a body that writes there itself, unless it exists; its name.

        The attempt fence runs first. Raises FenceError or StoreError.
        """
        with self._lock:  # a body may have threads
            if not self._is_open:
                self.context.assert_current()
                self._create_branch(within=AttemptStep.BODY)
        return self.branch

    def stage(self, changes: ChangeSet) -> StagedWorkspace:
        """Create the branch unless the body did, apply the changes, commit.

        The commit's only parent is the input commit. Raises StoreError.
        """
        repository, store = self.workspace.repository, self.context.runtime.store
        if not self._is_open:
            self._create_branch()
        with self.context.step(AttemptStep.STAGE_UPLOAD, then="staging.uploaded") as note:
            moved = store.upload(
                repository,
                self.branch,
                changes.uploads,
                self.context.on_transfer(AttemptStep.STAGE_UPLOAD),
            )
            store.delete_objects(repository, self.branch, changes.deletes)
            note(
                uploaded=len(changes.uploads),
                deleted=len(changes.deletes),
                objects_moved=moved.objects,
                bytes_moved=moved.bytes,
            )
            if changes.staged:
                note(staged=len(changes.staged))
        with self.context.step(AttemptStep.STAGE_COMMIT, then="staging.committed") as note:
            execution = self.context.execution
            commit = store.commit(
                repository,
                self.branch,
                message=commit_message(execution),
                metadata=execution.metadata() | {"perago.input_ref": self.workspace.ref},
            )
            note(commit=commit.id)
        if not commit.is_only_child_of(self.workspace.ref):
            raise StoreRefusedError(
                f"staging commit {commit.id} is not the only child of {self.workspace.ref}: "
                f"something else wrote to {self.branch}"
            )
        return StagedWorkspace(repository, self.branch, commit.id, commit.tree)

    def discard(self) -> None:
        """Delete the branch, whether or not its creation was ever confirmed. Never raises."""
        if not self._was_requested:
            return
        try:
            self.context.runtime.store.delete_branch(
                self.workspace.repository, self.branch, timeout=DELETE_TIMEOUT_SECONDS
            )
        except BranchNotFoundError:
            pass
        except StoreError as error:
            self.may_remain = True
            self.context.event("cleanup.failed", branch=self.branch, error=error.message)
        self.context.reached("staging.deleted")

    def _create_branch(self, *, within: AttemptStep | None = None) -> None:
        self._was_requested = True
        then = "staging.branch_created"
        with self.context.step(AttemptStep.STAGE_BRANCH, then=then, within=within) as note:
            self.context.runtime.store.create_branch(
                self.workspace.repository, self.branch, self.workspace.ref, hidden=True
            )
            note(branch=self.branch)
        self._is_open = True


def commit_message(execution: Execution) -> str:
    """The task's name, and which retry this is."""
    attempt = execution.attempt
    return attempt.task_name + (f", retry {attempt.retry_count}" if attempt.retry_count else "")
