"""Whether the workspace a task takes is the one it has to take, on one path."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from perago.operations.workflow_check.values import (
    Commit,
    Computed,
    Fields,
    Given,
    Known,
    Missing,
    Value,
    Workspace,
    workspace_in,
)

if TYPE_CHECKING:
    from perago.operations.workflow_check.paths import Path


class Effect(Enum):
    """What a task does to the workspace it is given."""

    WRITES = "writes"
    READS = "reads"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with what a task takes, if anything, as the end of a sentence about it."""

    problem: str | None = None
    doubt: str | None = None


def judge(value: Value, effect: Effect, path: Path) -> Verdict:
    """The rule of the protocol, for a task about to run on this path.

    A writer takes the branch's head: what the last writer of the branch put out or, where none has
    run, what the workflow was given. A reader may take any commit of a branch that isn't written
    here, and else the same as a writer.
    """
    workspace = workspace_in(value)
    if workspace is None:
        return _not_followed(value, effect)
    if workspace.branch in path.excused:
        return Verdict()
    written = workspace.branch in path.heads
    match workspace.ref:
        case Missing(why):
            return Verdict(f"may be missing: {why}")
        case Known(commit):
            return _named_in_the_definition(commit, effect)
        case Commit(branch, stale=False) if branch == workspace.branch:
            return Verdict()
        case Commit(branch) if branch != workspace.branch and not written:
            return _from_another_branch(workspace, effect)
        case Given() if not written:
            return Verdict()
        case Computed(words) if not written:
            return _computed(words, effect)
        case Commit() | Given() | Computed():
            return Verdict(f"is older than what {path.heads[workspace.branch]} wrote before it")
        case _:
            return Verdict("is no workspace: its ref is no commit")


def is_current(value: Value, path: Path) -> bool:
    return workspace_in(value) is not None and judge(value, Effect.WRITES, path) == Verdict()


def _not_followed(value: Value, effect: Effect) -> Verdict:
    match value:
        case Missing(why):
            return Verdict(f"may be missing: {why}")
        case Computed(words):
            return _computed(words, effect)
        case Fields(items):
            lacking = [key for key in ("repository", "branch", "ref") if key not in dict(items)]
            return Verdict(f"is no workspace: it lacks {', '.join(lacking) or 'a name'}")
        case _:
            return Verdict("is no workspace")


def _computed(words: str, effect: Effect) -> Verdict:
    sentence = f"comes from {words}: nothing shows which commit that is"
    return Verdict(doubt=sentence) if effect is Effect.READS else Verdict(sentence)


def _named_in_the_definition(commit: object, effect: Effect) -> Verdict:
    if effect is Effect.READS:
        return Verdict()
    return Verdict(
        f"starts from the commit {commit!r} that the definition names: it is the branch's head "
        "once at most"
    )


def _from_another_branch(workspace: Workspace, effect: Effect) -> Verdict:
    if effect is Effect.READS:
        return Verdict()
    return Verdict(
        doubt=f"starts {workspace.branch} from a commit of another branch, which is refused unless "
        "that is its head by then"
    )
