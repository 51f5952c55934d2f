"""The protocol's rule for one task on one path: which workspace it must take."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from perago.operations.workflow_check.context import (
    Scope,
    after_no_write,
    failed_record,
    task_record,
    unknown_output,
)
from perago.operations.workflow_check.path_state import PathState, TaskRef, Write
from perago.operations.workflow_check.values import (
    Branch,
    Constant,
    Input,
    Missing,
    Object,
    Published,
    Unknown,
    Value,
    Workspace,
    fields_of,
    project,
    workspace_in,
)

if TYPE_CHECKING:
    from perago.operations.workflow_check.definition import Node


_FIRST = "${workflow.input.workspace}"


class Effect(Enum):
    """What a task does to the workspace it is given."""

    WRITES = "writes"
    READS = "reads"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a task's workspace, as the end of a sentence; both None if nothing is."""

    problem: str | None = None
    warning: str | None = None


def judge(value: Value, effect: Effect, path: PathState) -> Verdict:
    """Check the workspace of a task that is about to run on this path.

    A writer must take the branch's head: the output of the branch's last writer or, before any
    writer has run, the workflow's input. A reader may take any commit of a branch that this
    workflow doesn't write; otherwise it must take the same as a writer.
    """
    workspace = workspace_in(value)
    if workspace is None:
        return _without_branch(value, effect)
    if workspace.branch in path.reported_branches:
        return Verdict()
    written = workspace.branch in path.last_writers
    match workspace.ref:
        case Missing(why):
            return Verdict(f"may be missing: {why}")
        case Constant(commit):
            return _named_in_the_definition(commit, effect)
        case Published(branch, stale=False) if branch == workspace.branch:
            return Verdict()
        case Published(branch) if branch != workspace.branch and not written:
            return _from_another_branch(workspace, effect)
        case Input() if not written:
            return Verdict()
        case Unknown(origin) if not written:
            return _unknown(origin, effect)
        case Published() | Input() | Unknown():
            return Verdict(
                f"is older than what {path.last_writers[workspace.branch]} wrote before it"
            )
        case _:
            return Verdict("is no workspace: its ref isn't a commit")


def is_current(value: Value, path: PathState) -> bool:
    return workspace_in(value) is not None and judge(value, Effect.WRITES, path) == Verdict()


def _without_branch(value: Value, effect: Effect) -> Verdict:
    match value:
        case Missing(why):
            return Verdict(f"may be missing: {why}")
        case Unknown(origin):
            return _unknown(origin, effect)
        case Object(items):
            lacking = [key for key in ("repository", "branch", "ref") if key not in dict(items)]
            return Verdict(f"is no workspace: it lacks {', '.join(lacking) or 'a name'}")
        case _:
            return Verdict("is no workspace")


def _unknown(origin: str, effect: Effect) -> Verdict:
    sentence = f"comes from {origin}: nothing shows which commit that is"
    return Verdict(warning=sentence) if effect is Effect.READS else Verdict(sentence)


def _named_in_the_definition(commit: object, effect: Effect) -> Verdict:
    if effect is Effect.READS:
        return Verdict()
    return Verdict(
        f"starts from the commit {commit!r}, written in the definition: that is the branch's head "
        "once at most"
    )


def _from_another_branch(workspace: Workspace, effect: Effect) -> Verdict:
    if effect is Effect.READS:
        return Verdict()
    return Verdict(
        warning=f"starts {workspace.branch} from a commit of another branch: that is refused "
        "unless it is the head by then"
    )


def after_worker_task(node: Node, path: PathState, scope: Scope) -> list[PathState]:
    """The paths after a worker's task. An unknown task writes the workspace it is given."""
    name = _task_name(node, path, scope)
    given = "workspace" in node.inputs
    effect = scope.context.effects.get(name, Effect.WRITES if given else Effect.NONE)
    if effect is Effect.NONE:
        if given:
            scope.report.add_problem(
                scope.ref(node),
                f"{node.reference} is given a workspace, but the task {name} takes none",
                fix="leave workspace out of its inputParameters",
            )
        return [after_no_write(node, unknown_output(node), path, scope)]
    done = use_workspace(node, scope.value(node.inputs, path), effect, path, scope)
    return (
        [done, path.with_record(node.reference, failed_record(node))] if node.optional else [done]
    )


def use_workspace(
    node: Node, inputs: Value, effect: Effect, path: PathState, scope: Scope
) -> PathState:
    """The path after a task has read or written the workspace in its inputs."""
    value = project(inputs, ["workspace"])
    workspace = workspace_in(value) or _assumed_workspace(path, scope)
    branch, task = workspace.branch, scope.ref(node)
    if effect is Effect.WRITES:
        for write, fix in sorted(path.unawaited, key=str):
            why = f"nothing waits for {write.by}"
            scope.context.report_concurrent_writes(write, Write(branch, task), why, fix)
    _report_use(node, value, effect, path, scope)
    if effect is Effect.READS:
        return path.with_record(
            node.reference, task_record(inputs, _output(node, workspace, workspace.ref))
        )
    output = _output(node, workspace, Published(branch))
    written = task_record(inputs, output, frozenset({branch}))
    return path.with_write(branch, task).with_record(node.reference, written)


def check_output(end: PathState, scope: Scope) -> None:
    """Check that the workspace in the workflow's output is the newest one."""
    value = scope.value(scope.definition.outputs.get("workspace"), end)
    workspace = workspace_in(value)
    if workspace is None or workspace.branch not in end.last_writers or is_current(value, end):
        return
    task = TaskRef(scope.label, "outputParameters")
    written = _as_written(scope.definition.outputs["workspace"])
    expected = str(_expected(workspace, end, scope))
    scope.report.add_expected(task, expected)
    scope.report.add_problem(
        task,
        f"the workflow {scope.label} outputs {written}, but "
        f"{end.last_writers[workspace.branch]} writes that branch last",
        fix=f'write "workspace": "{expected}" in its outputParameters',
        takes=written,
        should_take=expected,
    )


def _report_use(node: Node, value: Value, effect: Effect, path: PathState, scope: Scope) -> None:
    task, written = scope.ref(node), _as_written(node.inputs.get("workspace"))
    verdict = judge(value, effect, path)
    expected = _expected(workspace_in(value), path, scope)
    if expected is None:
        expected = _FIRST if verdict.problem else written
    scope.report.add_expected(task, expected)
    if verdict.warning:
        scope.report.add_warning(f"{task} takes {written}, which {verdict.warning}")
    if verdict.problem:
        given = node.inputs.get("workspace") is not None
        scope.report.add_problem(
            task,
            f"{task} takes {written}" + (f", which {verdict.problem}" if given else ""),
            fix=f'write "workspace": "{expected}" in the inputParameters of {task.reference}',
            takes=written,
            should_take=expected,
        )


def _output(node: Node, workspace: Workspace, ref: Value) -> Value:
    return Object.of({"workspace": fields_of(workspace, ref), "result": unknown_output(node)})


def _expected(taken: Workspace | None, path: PathState, scope: Scope) -> str | None:
    """The expression for the head of the task's branch; None if no task has written it."""
    branch = taken.branch if taken else path.last_written
    writer = path.last_writers.get(branch) if branch else None
    if writer is None:
        return None
    if writer.workflow == scope.label:
        return f"${{{writer.reference}.output.workspace}}"
    if is_current(project(scope.inputs, ["workspace"]), path):
        return _FIRST
    return f"the workspace that {writer} outputs"


def _assumed_workspace(path: PathState, scope: Scope) -> Workspace:
    """What an unknown workspace is assumed to be: the branch written last, or the input's."""
    handed_in = workspace_in(project(scope.inputs, ["workspace"]))
    unknown = Unknown(f"a branch of {scope.label}")
    branch = path.last_written or (handed_in.branch if handed_in else Branch(unknown, unknown))
    return Workspace(branch, Published(branch))


def _task_name(node: Node, path: PathState, scope: Scope) -> str:
    if node.kind != "DYNAMIC":
        return node.name
    named = node.inputs.get(str(node.more.get("dynamicTaskNameParam")))
    name = scope.value(named, path)
    return str(name.value) if isinstance(name, Constant) else ""


def _as_written(written: object) -> str:
    if written is None:
        return "no workspace"
    return written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
