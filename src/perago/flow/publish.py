"""Move the target branch, once, by the publish table; and know for certain that it moved.

A publication ends in one of three ways. *Published*: :class:`Published` is returned. *Refused*:
:class:`PublishFenceError`, and the branch is as it was. *Unknown*: :class:`PublishUnknownError`,
after reading the branch didn't settle it; never reported as a success.
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
from perago.flow.fences import (
    Move,
    assert_not_a_twins,
    decide,
    reason_not_to_replace,
    resolve_level,
)
from perago.flow.stage import DELETE_TIMEOUT_SECONDS, commit_message
from perago.model.attempt import TASK_ID_KEY
from perago.model.commit import ACTIONS_PREFIX, EXPECTED_HEAD_KEY, TABLES_KEY
from perago.model.outcome import Published, PublishLevel, PublishPath

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.flow.runtime import AttemptContext, Note
    from perago.model.commit import Commit
    from perago.model.outcome import StagedWorkspace
    from perago.model.workspace import WorkspaceRef
    from perago.ports.store import Store


DEFINITE_NO = (StoreRefusedError, BranchNotFoundError, CommitNotFoundError)
"""Answers that say nothing was changed. After any other error, only the branch can tell."""
MERGE_SENDINGS = 3
"""How often a merge that provably didn't happen is sent, where a late copy does no harm."""
SEARCH_LIMIT = 1000
"""How many commits are searched for ours. A branch that moved further leaves it unknown."""


def level_in_force(
    context: AttemptContext, workspace: WorkspaceRef, staged: StagedWorkspace | None
) -> PublishLevel:
    """The level at which this publication is fenced. Warns once where it is less than it could be.

    Raises PublishFenceError if PERAGO_PUBLISH_FENCE asks for more than there is.
    """
    runtime, trial = context.runtime, context.execution.trial_branch
    refs = [workspace.ref, *([staged.commit] if staged else [])]
    found = [runtime.store.atomicity(workspace.repository, ref, trial=trial) for ref in refs]
    level = resolve_level(runtime.fence, found)
    shortcoming = next((one.shortcoming for one in found if one.shortcoming), None)
    if level is PublishLevel.SOFT and runtime.fence == "auto" and shortcoming:
        context.warn_once(
            "fence.soft",
            f"publishing with the soft fence only: {shortcoming}. "
            f"`perago fence install {workspace.repository} --branch {workspace.branch}` closes "
            "that gap",
        )
    return level


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """One execution's attempt to move one branch.

    ``staged`` is None if the task changed nothing. ``tables`` are the results of the table checks;
    the published commit's metadata carries them. ``note`` gets ``merge_seconds``, the duration of
    the request that moves the branch: publish budgets are sized by it.
    """

    context: AttemptContext
    workspace: WorkspaceRef
    staged: StagedWorkspace | None
    level: PublishLevel
    tables: Sequence[Mapping[str, object]]
    note: Note

    @property
    def store(self) -> Store:
        return self.context.runtime.store

    def publish(self) -> Published:
        """Raises FenceError, UnsettledPublishError or StoreError; never more than one move."""
        workspace = self.workspace
        try:
            head = self.store.head(workspace.repository, workspace.branch)
        except BranchNotFoundError as gone:
            raise PublishFenceError(
                f"the target, workspace.branch {workspace.branch!r}, is gone", fix=gone.fix
            ) from gone
        self.context.reached("publish.head_read")
        move = decide(head, workspace.ref, changed=self.staged is not None)
        if move in (Move.REPLACE, Move.RELOCATE_BACK):
            # Check staleness first, so that a stale attempt gets StaleAttemptError and not a
            # complaint about the commit of its own retry.
            self.context.assert_still_ours()
        self.context.event(
            "publish.decided", move=move.name.lower(), head=head.id, level=self.level
        )
        self.context.reached("publish.decided")

        if move is Move.REFUSE:
            raise self._not_our_head(head)
        if move is Move.NOTHING:
            return Published(workspace.ref, PublishPath.UNCHANGED, self.level)
        if move is Move.MERGE and self.staged:
            return self._merge(self.staged)
        if move is Move.REPLACE and self.staged:
            with self._replacement(self.staged) as replacement:
                self._relocate(head, replacement)
            return Published(replacement, PublishPath.REPLACED, self.level, head.id)
        self._relocate(head, workspace.ref)
        return Published(workspace.ref, PublishPath.RELOCATED_BACK, self.level, head.id)

    def _not_our_head(self, head: Commit) -> PublishFenceError:
        return PublishFenceError(
            f"{self.workspace.branch!r} is at {head.id}, which is neither the input commit "
            f"{self.workspace.ref} nor a single commit on top of it: something else wrote there",
            fix="start a new run from the branch's present head",
        )

    # --- the head is the input commit: merge
    def _merge(self, staged: StagedWorkspace) -> Published:
        self.context.reached("publish.cleared")
        for sending in range(1, MERGE_SENDINGS + 1):
            try:
                with self._timed():
                    landed = self._send_merge(staged, self.workspace.branch)
            except StoreError as answer:
                self.context.reached("publish.sent")
                found = self._settle_merge(answer, last=sending == MERGE_SENDINGS)
                if found is None:
                    self.context.assert_still_ours()
                    continue
                landed = found
            else:
                self.context.reached("publish.sent")
            self._assert_landed_right(landed, staged)
            self.context.reached("publish.verified")
            return Published(landed.id, PublishPath.MERGED, self.level)
        raise AssertionError("the last sending either lands or raises")

    def _send_merge(self, staged: StagedWorkspace, branch: str) -> Commit:
        input_ref, execution = self.workspace.ref, self.context.execution
        return self.store.merge(
            staged.repository,
            staged.commit,
            branch,
            expected_head=input_ref if self.level is PublishLevel.CAS else None,
            message=commit_message(execution),
            metadata=execution.metadata()
            | {"perago.input_ref": input_ref, EXPECTED_HEAD_KEY: input_ref}
            | ({TABLES_KEY: json.dumps(self.tables)} if self.tables else {}),
            timeout=self.context.budget.lakefs_merge_timeout_seconds,
        )

    def _settle_merge(self, answer: StoreError, *, last: bool) -> Commit | None:
        """Read the branch: our commit if it is there, None if the merge may be sent again.

        Also after a refusal: it may answer a second copy of a request whose first copy was applied.
        """
        branch = self.workspace.branch
        try:
            landing = find_landing(self.store, self.workspace, self.context.execution.id)
        except StoreError as unreadable:
            raise self._unknown(answer, _unreadable(unreadable)) from answer
        self._log_read_back(
            answer,
            landing.head,
            found=landing.found.id if landing.found else None,
            proven_absent=landing.proven_absent,
        )
        if landing.found:
            return landing.found
        if isinstance(answer, DEFINITE_NO) and landing.proven_absent:
            assert_not_a_twins(landing.head, self.context.execution)
            raise PublishFenceError(
                f"the merge was refused: {answer.message}; {branch!r} is at {landing.head.id}",
                fix=answer.fix,
            ) from answer
        may_resend = landing.proven_absent and landing.head.id == self.workspace.ref
        if may_resend and self.level is PublishLevel.CAS and not last:
            return None
        raise self._unknown(answer, f"{branch!r} is at {landing.head.id}") from answer

    def _assert_landed_right(self, landed: Commit, staged: StagedWorkspace) -> None:
        if not landed_right(landed, self.workspace, staged):
            raise WrongLandingError(
                f"the merge landed as {landed.id} on parent {', '.join(landed.parents)} instead of "
                f"{self.workspace.ref}: something else moved {self.workspace.branch!r} meanwhile",
                fix="look at the branch's history, relocate it if needed, then start a new run "
                "from its head",
            )

    # --- the head is one commit further, and abandoned: relocate
    @contextmanager
    def _replacement(self, staged: StagedWorkspace) -> Iterator[str]:
        """The commit that replaces the head: the staging commit, or a copy with check results.

        Tables are checked at the staging commit, so that one can't carry the results. The copy is
        a merge of it into a branch of this execution that starts at the input commit.
        """
        if not self.tables:
            yield staged.commit
            return
        branch = self.context.execution.trial_branch
        self.store.create_branch(staged.repository, branch, self.workspace.ref, hidden=True)
        try:
            copy = self._send_merge(staged, branch)
            if not landed_right(copy, self.workspace, staged):
                raise StoreRefusedError(
                    f"{copy.id} isn't the staged state on top of {self.workspace.ref}: something "
                    f"else wrote to {branch}"
                )
            yield copy.id
        finally:
            with suppress(StoreError):  # `perago gc` deletes it later
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
        # Since fence 2 this attempt may have timed out, and its retry may have been accepted with
        # this very head. The orchestrator is asked after the head was read: if it still counts on
        # us, the execution that published the head lost its lease before, and can't be accepted
        # any more. It is asked last, since nothing else checks what an unconditional update undoes.
        self.context.assert_still_ours()
        self.context.reached("publish.cleared")
        try:
            with self._timed():
                self.store.relocate(
                    repository,
                    branch,
                    to,
                    expected_head=head.id if swaps else None,
                    timeout=self.context.budget.lakefs_merge_timeout_seconds,
                )
        except StoreError as answer:
            self.context.reached("publish.sent")
            self._settle_relocation(answer, to)
        else:
            self.context.reached("publish.sent")
        self.context.event("publish.replaced", replaced=head.id, by=to)
        self.context.reached("publish.verified")

    def _assert_replaceable(self, head: Commit) -> None:
        workspace, execution = self.workspace, self.context.execution
        runtime = self.context.runtime
        assert_not_a_twins(head, execution)
        actions = self.store.changed_keys(
            workspace.repository, workspace.ref, head.id, prefix=ACTIONS_PREFIX
        )
        task_id = head.metadata.get(TASK_ID_KEY)
        reason = reason_not_to_replace(
            head,
            execution,
            policy=runtime.replace,
            was_accepted=task_id is not None
            and runtime.orchestrator.accepted_ref(task_id) == head.id,
            touches_actions=next(iter(actions), None) is not None,
            uncommitted=self.store.uncommitted(workspace.repository, workspace.branch),
        )
        if reason:
            raise PublishFenceError(
                f"{workspace.branch!r} is at {head.id}, which may not be replaced: {reason}",
                fix="settle it by hand, then start a new run from the branch's head",
            )

    def _assert_unmoved(self, head: Commit) -> None:
        """The head that was judged is the one to be replaced: judging took several requests."""
        now = self.store.head(self.workspace.repository, self.workspace.branch)
        if now.id != head.id:
            assert_not_a_twins(now, self.context.execution)
            raise PublishFenceError(
                f"{self.workspace.branch!r} moved from {head.id} to {now.id} while it was being "
                "looked at",
                fix="start a new run from the branch's present head",
            )

    def _settle_relocation(self, answer: StoreError, to: str) -> None:
        """Read the head: if it is ``to``, it happened. If not, it was refused, or is unknown."""
        try:
            head = self.store.head(self.workspace.repository, self.workspace.branch)
        except StoreError as unreadable:
            raise self._unknown(answer, _unreadable(unreadable)) from answer
        self._log_read_back(answer, head, wanted=to)
        if head.id == to:
            return
        if isinstance(answer, DEFINITE_NO):
            assert_not_a_twins(head, self.context.execution)
            raise PublishFenceError(
                f"replacing the abandoned head was refused: {answer.message}", fix=answer.fix
            ) from answer
        raise self._unknown(answer, f"{self.workspace.branch!r} is at {head.id}") from answer

    # --- both
    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Note how long the request took, whatever its answer; of several, the last one's."""
        clock = self.context.runtime.clock
        began = clock.monotonic()
        try:
            yield
        finally:
            self.note(merge_seconds=round(clock.monotonic() - began, 6))

    def _log_read_back(self, answer: StoreError, head: Commit, **seen: object) -> None:
        """Log the evidence by which an unclear answer is judged."""
        self.context.event(
            "publish.read_back",
            answer=answer.message,
            input=self.workspace.ref,
            staged=self.staged.commit if self.staged else None,
            head=head.id,
            **seen,
        )

    def _unknown(self, answer: StoreError, state: str) -> PublishUnknownError:
        staged = f", staged {self.staged.commit}" if self.staged else ""
        return PublishUnknownError(
            f"unknown whether this was published (input {self.workspace.ref}{staged}): "
            f"{answer.message}; {state}",
            fix="look at the branch's history; a retry or a new run from its head goes on safely",
        )


def _unreadable(error: StoreError) -> str:
    return f"and reading back failed: {error.message}"


@dataclass(frozen=True, slots=True)
class Landing:
    """What a search of the target branch found of one execution's publication."""

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
