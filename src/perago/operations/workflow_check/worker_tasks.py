"""A task that a worker or a person does: what it takes, and what it makes of the branch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from perago.operations.workflow_check.paths import Path, Place, Write
from perago.operations.workflow_check.survey import Frame, computed_by, failed, ran, record
from perago.operations.workflow_check.taking import Effect, is_current, judge
from perago.operations.workflow_check.values import (
    Branch,
    Commit,
    Computed,
    Fields,
    Known,
    Value,
    Workspace,
    fields_of,
    project,
    workspace_in,
)

if TYPE_CHECKING:
    from perago.operations.workflow_check.definition import Node

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
        frame.notes.doubt(f"{place} takes {written}, which {verdict.doubt}")
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
