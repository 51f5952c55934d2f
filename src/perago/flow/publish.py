"""Step 10: move the target branch, once, by the publish table; and know for certain that it moved.

A publish ends in one of three ways. *Published*: :class:`Published` is returned. *Refused*:
:class:`PublishFenceError`, and the branch is as it was. *Unknown*: :class:`PublishUnknownError`,
after reading back didn't settle it; never reported as a success.
"""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    PublishFenceError,
    PublishUnknownError,
    StoreError,
    StoreRefusedError,
    WrongLandingError,
)
from perago.flow.fences import Move, assert_not_a_twins, decide, reason_not_to_replace
from perago.flow.stage import DELETE_TIMEOUT_SECONDS, commit_message
from perago.model.attempt import TASK_ID_KEY
from perago.model.commit import ACTIONS_PREFIX, EXPECTED_HEAD_KEY, TABLES_KEY
from perago.model.outcome import Published, PublishLevel, PublishPath

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from perago.flow.runtime import Note, ReplacePolicy, Steps
    from perago.model.attempt import Execution
    from perago.model.commit import Commit
    from perago.model.controls import PublishBudget
    from perago.model.outcome import StagedWorkspace
    from perago.model.workspace import WorkspaceRef
    from perago.ports.store import Store


# --- An answer was lost, or may be about an earlier copy of our request: look what really ---
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


DEFINITE_NO = (StoreRefusedError, BranchNotFoundError, CommitNotFoundError)
"""Answers that say nothing was changed. After any other error, only the branch can tell."""
MERGE_SENDINGS = 3
"""How often a merge proven not to have happened may be sent, where a late copy can't do harm."""


@dataclass(frozen=True, slots=True)
class Publication:
    """One execution's wish to move one branch.

    ``assert_still_ours`` raises FenceError unless the orchestrator counts on this attempt right
    now and its lease covers a publication. ``accepted_ref`` is the orchestrator's word on a task:
    only what no task was accepted with can be abandoned. ``note`` is told how long the request
    took that moves the branch: publish budgets are sized by that. ``tables`` is what was found in
    the data; the published commit tells it.
    """

    store: Store
    steps: Steps
    execution: Execution
    workspace: WorkspaceRef
    staged: StagedWorkspace | None
    level: PublishLevel
    budget: PublishBudget
    assert_still_ours: Callable[[], None]
    accepted_ref: Callable[[str], str | None]
    note: Note
    replace: ReplacePolicy = "any"
    tables: Sequence[Mapping[str, object]] = ()

    def publish(self) -> Published:
        try:
            head = self.store.head(self.workspace.repository, self.workspace.branch)
        except BranchNotFoundError as gone:
            raise PublishFenceError(
                f"the target, workspace.branch {self.workspace.branch!r}, is gone", fix=gone.fix
            ) from gone
        self.steps.reached("publish.head_read")
        move = decide(head, self.workspace.ref, changed=self.staged is not None)
        if move in (Move.REPLACE, Move.RELOCATE_BACK):
            # Who is stale is to hear that, and not what is wrong with its own retry's commit.
            self.assert_still_ours()
        self.steps.journal.event(
            "publish.decided", move=move.name.lower(), head=head.id, level=self.level
        )
        self.steps.reached("publish.decided")

        if move is Move.REFUSE:
            raise self._fenced_off(head)
        if move is Move.NOTHING:
            return Published(self.workspace.ref, PublishPath.UNCHANGED, self.level)
        if move is Move.MERGE and self.staged:
            return self._merge(self.staged)
        if move is Move.REPLACE and self.staged:
            with self._telling_tables(self.staged) as replacement:
                self._relocate(head, replacement)
            return Published(replacement, PublishPath.REPLACED, self.level, head.id)
        self._relocate(head, self.workspace.ref)
        return Published(self.workspace.ref, PublishPath.RELOCATED_BACK, self.level, head.id)

    # --- H == A -------------------------------------------------------------------------------
    def _merge(self, staged: StagedWorkspace) -> Published:
        self.steps.reached("publish.cleared")
        for sending in range(1, MERGE_SENDINGS + 1):
            try:
                with self._timed():
                    landed = self._send_merge(staged)
            except StoreError as answer:
                self.steps.reached("publish.sent")
                found = self._settle_merge(answer, last=sending == MERGE_SENDINGS)
                if found is None:
                    self.assert_still_ours()
                    continue
                landed = found
            else:
                self.steps.reached("publish.sent")
            self._verify(landed, staged)
            self.steps.reached("publish.verified")
            return Published(landed.id, PublishPath.MERGED, self.level)
        raise AssertionError("the last sending either lands or raises")

    def _send_merge(self, staged: StagedWorkspace, branch: str | None = None) -> Commit:
        expected = self.workspace.ref if self.level is PublishLevel.CAS else None
        return self.store.merge(
            staged.repository,
            staged.commit,
            branch or self.workspace.branch,
            expected_head=expected,
            message=commit_message(self.execution),
            metadata=self.execution.metadata()
            | {"perago.input_ref": self.workspace.ref, EXPECTED_HEAD_KEY: self.workspace.ref}
            | ({TABLES_KEY: json.dumps(self.tables)} if self.tables else {}),
            timeout=self.budget.lakefs_merge_timeout_seconds,
        )

    def _settle_merge(self, answer: StoreError, *, last: bool) -> Commit | None:
        """Read back: our commit if it is there, None if the merge may be sent again.

        A refusal is read back as well: it may be the answer to a second copy of a request whose
        first copy was applied.
        """
        try:
            landing = find_landing(self.store, self.workspace, self.execution.id)
        except StoreError as blind:
            raise self._unknown(answer, f"and reading back failed: {blind.message}") from answer
        self._note_evidence(
            answer,
            landing.head,
            found=landing.found.id if landing.found else None,
            proven_absent=landing.proven_absent,
        )
        if landing.found:
            return landing.found
        if isinstance(answer, DEFINITE_NO) and landing.proven_absent:
            assert_not_a_twins(landing.head, self.execution)
            raise PublishFenceError(
                f"the merge was refused: {answer.message}; "
                f"{self.workspace.branch!r} is at {landing.head.id}",
                fix=answer.fix,
            ) from answer
        resend = landing.proven_absent and landing.head.id == self.workspace.ref
        if resend and self.level is PublishLevel.CAS and not last:
            return None
        raise self._unknown(
            answer, f"{self.workspace.branch!r} is at {landing.head.id}"
        ) from answer

    def _verify(self, landed: Commit, staged: StagedWorkspace) -> None:
        if not landed_right(landed, self.workspace, staged):
            raise WrongLandingError(
                f"the merge landed as {landed.id} on parent {', '.join(landed.parents)} instead of "
                f"{self.workspace.ref}: something else moved {self.workspace.branch!r} meanwhile",
                fix="look at the branch's history, relocate it if needed, then start a new run "
                "from its head",
            )

    # --- parent(H) == A -----------------------------------------------------------------------
    @contextmanager
    def _telling_tables(self, staged: StagedWorkspace) -> Iterator[str]:
        """The commit to put in the head's place: C, or if its tables were looked at, C's like.

        They were looked at in C, which therefore can't tell what was found there. Its like is C
        merged into a branch of this execution that is at A.
        """
        if not self.tables:
            yield staged.commit
            return
        branch = self.execution.trial_branch
        self.store.create_branch(staged.repository, branch, self.workspace.ref, hidden=True)
        try:
            like = self._send_merge(staged, branch)
            if not landed_right(like, self.workspace, staged):
                raise StoreRefusedError(
                    f"{like.id} isn't the staged state on top of {self.workspace.ref}: something "
                    f"else wrote to {branch}"
                )
            yield like.id
        finally:
            with suppress(StoreError):  # `perago gc` finds what couldn't be deleted now
                self.store.delete_branch(staged.repository, branch, timeout=DELETE_TIMEOUT_SECONDS)

    def _relocate(self, head: Commit, to: str) -> None:
        repository, branch = self.workspace.repository, self.workspace.branch
        self._assert_replaceable(head)
        swaps = (
            self.level is PublishLevel.CAS
            and self.store.atomicity(repository, head.id).cas_relocate
        )
        if not swaps:
            self._assert_unmoved(head)
        # Since fence 2 this attempt may have timed out and its retry have been accepted with this
        # very head. Asked after the head was read, a yes means that whoever put it there lost its
        # standing earlier, and can't be accepted any more. Asked last, since nothing else looks
        # at what an unconditional update undoes.
        self.assert_still_ours()
        self.steps.reached("publish.cleared")
        try:
            with self._timed():
                self.store.relocate(
                    repository,
                    branch,
                    to,
                    expected_head=head.id if swaps else None,
                    timeout=self.budget.lakefs_merge_timeout_seconds,
                )
        except StoreError as answer:
            self.steps.reached("publish.sent")
            self._settle_relocation(answer, to)
        else:
            self.steps.reached("publish.sent")
        self.steps.journal.event("publish.replaced", replaced=head.id, by=to)
        self.steps.reached("publish.verified")

    def _assert_replaceable(self, head: Commit) -> None:
        repository, branch, ref = (
            self.workspace.repository,
            self.workspace.branch,
            self.workspace.ref,
        )
        assert_not_a_twins(head, self.execution)
        actions = self.store.changed_keys(repository, ref, head.id, prefix=ACTIONS_PREFIX)
        task_id = head.metadata.get(TASK_ID_KEY)
        reason = reason_not_to_replace(
            head,
            self.execution,
            policy=self.replace,
            was_accepted=task_id is not None and self.accepted_ref(task_id) == head.id,
            touches_actions=next(iter(actions), None) is not None,
            uncommitted=self.store.uncommitted(repository, branch),
        )
        if reason:
            raise PublishFenceError(
                f"{branch!r} is at {head.id}, which may not be replaced: {reason}",
                fix="settle it by hand, then start a new run from the branch's head",
            )

    def _assert_unmoved(self, head: Commit) -> None:
        """What was judged has to be what is replaced: the judging took some requests."""
        now = self.store.head(self.workspace.repository, self.workspace.branch)
        if now.id != head.id:
            assert_not_a_twins(now, self.execution)
            raise PublishFenceError(
                f"{self.workspace.branch!r} moved from {head.id} to {now.id} while it was being "
                "looked at",
                fix="start a new run from the branch's present head",
            )

    def _settle_relocation(self, answer: StoreError, to: str) -> None:
        """A lost reset is decided by the head: there, or unknown. A refused one, or refused."""
        try:
            head = self.store.head(self.workspace.repository, self.workspace.branch)
        except StoreError as blind:
            raise self._unknown(answer, f"and reading back failed: {blind.message}") from answer
        self._note_evidence(answer, head, wanted=to)
        if head.id == to:
            return
        if isinstance(answer, DEFINITE_NO):
            assert_not_a_twins(head, self.execution)
            raise PublishFenceError(
                f"replacing the abandoned head was refused: {answer.message}", fix=answer.fix
            ) from answer
        raise self._unknown(answer, f"{self.workspace.branch!r} is at {head.id}") from answer

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Note how long the request took, whatever its answer; of several, the last one's."""
        began = self.steps.clock.monotonic()
        try:
            yield
        finally:
            self.note(merge_seconds=round(self.steps.clock.monotonic() - began, 6))

    # --- when an answer was not enough -----------------------------------------------------------
    def _note_evidence(self, answer: StoreError, head: Commit, **seen: object) -> None:
        """Log what an unclear answer is judged by: A, H, C and the answer itself."""
        self.steps.journal.event(
            "publish.read_back",
            answer=answer.message,
            input=self.workspace.ref,
            staged=self.staged.commit if self.staged else None,
            head=head.id,
            **seen,
        )

    # --- the two ways not to publish --------------------------------------------------------------
    def _fenced_off(self, head: Commit) -> PublishFenceError:
        return PublishFenceError(
            f"{self.workspace.branch!r} is at {head.id}, which is neither the input commit "
            f"{self.workspace.ref} nor a single commit on top of it: something else wrote there",
            fix="start a new run from the branch's present head",
        )

    def _unknown(self, answer: StoreError, state: str) -> PublishUnknownError:
        staged = f", staged {self.staged.commit}" if self.staged else ""
        return PublishUnknownError(
            f"unknown whether this was published (input {self.workspace.ref}{staged}): "
            f"{answer.message}; {state}",
            fix="look at the branch's history; a retry or a new run from its head goes on safely",
        )
