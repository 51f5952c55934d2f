"""Whether the workspace a task takes is the one it has to take, on one path."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from perago.operations.workflow_check.context import Frame, computed_by, failed, ran, record
from perago.operations.workflow_check.path_state import Path, Place, Write
from perago.operations.workflow_check.values import (
    Branch,
    Commit,
    Computed,
    Fields,
    Given,
    Known,
    Missing,
    Value,
    Workspace,
    fields_of,
    project,
    workspace_in,
)

if TYPE_CHECKING:
    from perago.operations.workflow_check.definition import Node


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


# --- A task that a worker or a person does: what it takes, and what it makes of the branch ---
_FIRST = "${workflow.input.workspace}"


def after_worker_task(node: Node, path: Path, frame: Frame) -> list[Path]:
    """The paths on from a task. One that nothing is known of writes the workspace it is given."""
    name = _task_name(node, path, frame)
    given = "workspace" in node.inputs
    effect = frame.survey.effects.get(name, Effect.WRITES if given else Effect.NONE)
    if effect is Effect.NONE:
        if given:
            frame.notes.refuse(
                frame.place(node),
                f"{node.reference} is given a workspace, and the task {name} takes none",
                fix="leave workspace out of its inputParameters",
            )
        return [ran(node, computed_by(node), path, frame)]
    done = take(node, frame.value(node.inputs, path), effect, path, frame)
    return [done, path.ran(node.reference, failed(node))] if node.optional else [done]


def take(node: Node, inputs: Value, effect: Effect, path: Path, frame: Frame) -> Path:
    """The path after a task has taken a workspace, read or written it, and put it out again."""
    value = project(inputs, ["workspace"])
    workspace = workspace_in(value) or _meant(path, frame)
    branch, place = workspace.branch, frame.place(node)
    if effect is Effect.WRITES:
        for write, fix in sorted(path.beside, key=str):
            why = f"nothing waits for {write.by}"
            frame.survey.side_by_side(write, Write(branch, place), why, fix)
    _note(node, value, effect, path, frame)
    if effect is Effect.READS:
        return path.ran(node.reference, record(inputs, _output(node, workspace, workspace.ref)))
    output = _output(node, workspace, Commit(branch))
    written = record(inputs, output, frozenset({branch}))
    return path.wrote(branch, place).ran(node.reference, written)


def look_at_output(end: Path, frame: Frame) -> None:
    """Whoever goes on from the workspace that a workflow puts out needs the newest one."""
    value = frame.value(frame.definition.outputs.get("workspace"), end)
    workspace = workspace_in(value)
    if workspace is None or workspace.branch not in end.heads or is_current(value, end):
        return
    place = Place(frame.label, "outputParameters")
    written = _as_written(frame.definition.outputs["workspace"])
    expected = str(_expected(workspace, end, frame))
    frame.notes.expects(place, expected)
    frame.notes.refuse(
        place,
        f"the workflow {frame.label} puts out {written}, and {end.heads[workspace.branch]} writes "
        "that branch last",
        fix=f'write "workspace": "{expected}" in its outputParameters',
        takes=written,
        should_take=expected,
    )


def _note(node: Node, value: Value, effect: Effect, path: Path, frame: Frame) -> None:
    place, written = frame.place(node), _as_written(node.inputs.get("workspace"))
    verdict = judge(value, effect, path)
    expected = _expected(workspace_in(value), path, frame)
    if expected is None:
        expected = _FIRST if verdict.problem else written
    frame.notes.expects(place, expected)
    if verdict.doubt:
        frame.notes.warn(f"{place} takes {written}, which {verdict.doubt}")
    if verdict.problem:
        given = node.inputs.get("workspace") is not None
        frame.notes.refuse(
            place,
            f"{place} takes {written}" + (f", which {verdict.problem}" if given else ""),
            fix=f'write "workspace": "{expected}" in the inputParameters of {place.reference}',
            takes=written,
            should_take=expected,
        )


def _output(node: Node, workspace: Workspace, ref: Value) -> Value:
    return Fields.of({"workspace": fields_of(workspace, ref), "result": computed_by(node)})


def _expected(taken: Workspace | None, path: Path, frame: Frame) -> str | None:
    """The expression for the head of the task's branch; None if nobody has written it."""
    branch = taken.branch if taken else path.latest
    writer = path.heads.get(branch) if branch else None
    if writer is None:
        return None
    if writer.workflow == frame.label:
        return f"${{{writer.reference}.output.workspace}}"
    if is_current(project(frame.inputs, ["workspace"]), path):
        return _FIRST
    return f"the workspace that {writer} puts out"


def _meant(path: Path, frame: Frame) -> Workspace:
    """Where the workspace can't be followed: the branch written last, or the one handed in."""
    handed_in = workspace_in(project(frame.inputs, ["workspace"]))
    unknown = Computed(f"a branch of {frame.label}")
    branch = path.latest or (handed_in.branch if handed_in else Branch(unknown, unknown))
    return Workspace(branch, Commit(branch))


def _task_name(node: Node, path: Path, frame: Frame) -> str:
    if node.kind != "DYNAMIC":
        return node.name
    named = node.inputs.get(str(node.more.get("dynamicTaskNameParam")))
    name = frame.value(named, path)
    return str(name.value) if isinstance(name, Known) else ""


def _as_written(written: object) -> str:
    if written is None:
        return "no workspace"
    return written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
