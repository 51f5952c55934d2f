"""Follows every path through a workflow, and reports each task that takes the wrong workspace."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product

from perago.errors import UnsafeWorkflowError
from perago.operations.workflow_check.context import (
    CheckContext,
    Scope,
    after_no_write,
    failed_record,
    task_record,
    unknown_output,
)
from perago.operations.workflow_check.definition import (
    Definition,
    Node,
    read_definition,
    variables_set_by,
)
from perago.operations.workflow_check.path_state import (
    PathState,
    TaskRef,
    UnawaitedWrite,
    Write,
    branches_written,
    distinct,
    join_paths,
)
from perago.operations.workflow_check.values import (
    Branch,
    Constant,
    Object,
    Unknown,
    Value,
    project,
)
from perago.operations.workflow_check.workspace_rule import (
    Effect,
    after_worker_task,
    check_output,
    use_workspace,
)

MAX_PATHS = 500
"""More paths than this are refused: the check would take too long."""
_WITHOUT_WORKSPACE = frozenset(
    ("EVENT", "HTTP", "HTTP_POLL", "KAFKA_PUBLISH", "NOOP", "WAIT", "WAIT_FOR_WEBHOOK")
)
_SCRIPTS = {
    "INLINE": "expression",
    "LAMBDA": "scriptExpression",
    "JSON_JQ_TRANSFORM": "queryExpression",
}
_UNCHANGED = {
    "INLINE": re.compile(
        r"\$\.(\w+)\s*;?"
        r"|\(\s*function\s*\(\)\s*\{\s*return \$\.(\w+)\s*;?\s*\}\s*\)\(\)\s*;?"
    ),
    "LAMBDA": re.compile(r"return \$\.(\w+)\s*;?"),
    "JSON_JQ_TRANSFORM": re.compile(r"\.(\w+)"),
}


def check_all_paths(definition: Definition, inputs: Value, context: CheckContext) -> None:
    """Report everything that is wrong with a workflow started with these inputs."""
    scope = Scope(context, definition.name, definition, inputs, (definition.name,))
    for end in _run_tasks(definition.tasks, [PathState()], scope):
        check_output(end, scope)


def _run_tasks(tasks: Sequence[Node], paths: Sequence[PathState], scope: Scope) -> list[PathState]:
    """Every path after all these tasks."""
    reached = list(paths)
    for node, following in zip(tasks, (*tasks[1:], None), strict=False):
        steps = (_run_task(node, following, path, scope) for path in reached)
        reached = distinct(chain.from_iterable(steps))
        _assert_few_paths(reached, node, scope)
    return reached


def _assert_few_paths(paths: Collection[object], node: Node, scope: Scope) -> None:
    if len(paths) > MAX_PATHS:
        raise UnsafeWorkflowError(
            f"workflow {scope.label!r} can reach {node.reference} in more than {MAX_PATHS:,} ways "
            "that leave workspaces differently: too many to follow",
            fix="let every case of a SWITCH output the same workspace, or split the workflow",
        )


def _run_task(  # noqa: C901 - one row per kind of task
    node: Node, following: Node | None, path: PathState, scope: Scope
) -> Sequence[PathState]:
    match node.kind:
        case "FORK_JOIN" | "FORK":
            return _fork(node, following, path, scope)
        case "FORK_JOIN_DYNAMIC":
            return _dynamic_fork(node, path, scope)
        case "JOIN" | "EXCLUSIVE_JOIN":
            return [after_no_write(node, _joined_outputs(node, path), path, scope)]
        case "SWITCH" | "DECISION":
            after = after_no_write(node, unknown_output(node), path, scope)
            return [end for case in node.cases for end in _run_tasks(case, [after], scope)]
        case "DO_WHILE":
            return _loop(node, path, scope)
        case "SUB_WORKFLOW":
            return _sub_workflow(node, path, scope)
        case "START_WORKFLOW":
            return _started_workflow(node, path, scope)
        case "SET_VARIABLE":
            values = {name: scope.value(value, path) for name, value in node.inputs.items()}
            return [path.with_variables(values)]
        case "TERMINATE":
            return _terminate(node, path, scope)
        case "INLINE" | "LAMBDA" | "JSON_JQ_TRANSFORM":
            return [after_no_write(node, _script_output(node, path, scope), path, scope)]
        case kind if kind in _WITHOUT_WORKSPACE:
            return [after_no_write(node, unknown_output(node), path, scope)]
        case _:
            return after_worker_task(node, path, scope)


# --- Forks ----------------------------------------------------------------------------------------


def _fork(node: Node, following: Node | None, path: PathState, scope: Scope) -> Sequence[PathState]:
    """A JOIN waits only for the tasks it names; later tasks of the fork's branches go on."""
    join_on = following.join_on if following and following.kind == "JOIN" else ()
    awaited: list[list[PathState]] = []
    written: list[frozenset[Write]] = []
    goes_on: set[Write] = set()
    concurrent_variables = path.concurrent_variables
    for index, tasks in enumerate(node.forks):
        count = max((n for n, t in enumerate(tasks, 1) if t.reference in join_on), default=0)
        others = (*node.forks[:index], *node.forks[index + 1 :])
        start = path.at_fork_start(frozenset().union(*map(variables_set_by, others)))
        done = _run_tasks(tasks[:count], [start], scope)
        rest = _run_tasks(tasks[count:], done, scope)
        awaited.append(done)
        written.append(_recent(done) | _recent(rest))
        goes_on |= _recent(rest) - _recent(done)
        concurrent_variables |= variables_set_by(tasks[count:])
    join = following.reference if following else node.reference
    fix = f"name the last task of that branch of the fork in joinOn of {join}"
    unawaited = frozenset(UnawaitedWrite(write, fix) for write in goes_on)
    contested = _branches_written_twice(node, written, scope)
    return [
        replace(
            end,
            unawaited=end.unawaited | unawaited,
            concurrent_variables=concurrent_variables,
            reported_branches=end.reported_branches | contested,
        )
        for end in (join_paths(path, together) for together in product(*awaited))
    ]


def _branches_written_twice(
    node: Node, written: Sequence[frozenset[Write]], scope: Scope
) -> frozenset[Branch]:
    """The branches that two branches of the fork write; each is reported."""
    why = f"they are in two branches of the fork {node.reference}"
    fix = (
        "put them one after the other, each taking the output workspace of the one before, "
        "or give each its own branch"
    )
    return frozenset(
        other.branch
        for index, later in enumerate(written)
        for earlier in written[:index]
        for one, other in product(sorted(earlier, key=str), sorted(later, key=str))
        if scope.context.report_concurrent_writes(one, other, why, fix)
    )


def _dynamic_fork(node: Node, path: PathState, scope: Scope) -> Sequence[PathState]:
    if scope.definition.mentions_workspaces and not _forks_harmlessly(node, scope):
        task = scope.ref(node)
        scope.report.add_problem(
            task,
            f"{task} decides only when it runs which tasks run in parallel: nothing shows "
            "that they don't write one branch",
            fix="let it fork one task that writes nothing (forkTaskName; name the task's module in "
            "this command), or a workflow without workspaces",
        )
    return [after_no_write(node, unknown_output(node), path, scope)]


def _forks_harmlessly(node: Node, scope: Scope) -> bool:
    workflow = node.inputs.get("forkTaskWorkflow")
    if isinstance(workflow, str):
        forked = scope.context.resolve(workflow, None)
        return forked is not None and not forked.mentions_workspaces
    effect = scope.context.effects.get(str(node.inputs.get("forkTaskName")))
    return effect in (Effect.READS, Effect.NONE)


# --- Loops ----------------------------------------------------------------------------------------


def _loop(node: Node, path: PathState, scope: Scope) -> Sequence[PathState]:
    """Follow the loop until a round ends in a state that an earlier round ended in."""
    ends: dict[object, PathState] = {}
    begins = [path]
    while begins:
        reached = _run_tasks(node.loop, begins, scope)
        begins = [end for end in reached if end.fingerprint not in ends]
        ends |= {end.fingerprint: end for end in reached}
        _assert_few_paths(ends, node, scope)
    return [after_no_write(node, unknown_output(node), end, scope) for end in ends.values()]


# --- Other workflows ------------------------------------------------------------------------------


def _sub_workflow(node: Node, path: PathState, scope: Scope) -> Sequence[PathState]:
    inputs = scope.value(node.inputs, path)
    called = _object(node.more.get("subWorkflowParam"))
    inner = _called_definition(called, "workflowDefinition", scope)
    if inner is None:
        return [_run_unknown_workflow(node, called, inputs, path, scope)]
    task = scope.ref(node)
    ends = _run_workflow(inner, inputs, task, path, scope)
    done = [
        path.after_workflow(end, task, task_record(inputs, output, branches_written(end.writes)))
        for end, output in ends
    ]
    if not node.optional:
        return done
    # A failed sub-workflow may have published everything, a part, or nothing.
    broken_off = [path.after_workflow(end, task, failed_record(node)) for end, _ in ends]
    return [*done, *broken_off, path.with_record(node.reference, failed_record(node))]


def _started_workflow(node: Node, path: PathState, scope: Scope) -> Sequence[PathState]:
    called = _object(node.inputs.get("startWorkflow"))
    inputs = scope.value(_object(called.get("input")), path)
    inner = _called_definition(called, "workflowDef", scope)
    task = scope.ref(node)
    if inner is None:
        ends = [_run_unknown_workflow(node, called, inputs, path.at_workflow_start(), scope)]
    else:
        ends = [end for end, _ in _run_workflow(inner, inputs, task, path, scope)]
    fix = f"make {task.reference} a SUB_WORKFLOW, which this workflow waits for"
    writes = {write for end in ends for write in end.writes}
    for write in sorted(writes, key=str):
        if write.branch in path.last_writers:
            scope.report.add_problem(
                task,
                f"{task} starts a second workflow, which writes {write.branch} while this "
                "workflow writes it, too",
                fix=fix,
            )
    unawaited = path.unawaited.union(*(end.unawaited for end in ends))
    after = replace(path, unawaited=unawaited | {UnawaitedWrite(write, fix) for write in writes})
    return [after_no_write(node, unknown_output(node), after, scope)]


def _called_definition(
    called: Mapping[str, object], inline: str, scope: Scope
) -> Definition | None:
    """The called workflow's definition; None if it is unknown or an outer workflow."""
    definition = called.get(inline)
    if isinstance(definition, Mapping):
        return read_definition(definition)
    name, version = called.get("name"), called.get("version")
    if not isinstance(name, str) or "${" in name or name in scope.ancestors:
        return None
    return scope.context.resolve(name, version if isinstance(version, int) else None)


def _run_workflow(
    inner: Definition, inputs: Value, task: TaskRef, path: PathState, scope: Scope
) -> list[tuple[PathState, Value]]:
    """Each path through another workflow, with its output."""
    label = f"{task.workflow}/{task.reference}"
    below = Scope(scope.context, label, inner, inputs, (*scope.ancestors, inner.name))
    ends = _run_tasks(inner.tasks, [path.at_workflow_start()], below)
    for end in ends:
        check_output(end, below)
    return [*((end, _workflow_output(end, below)) for end in ends), *below.ended]


def _run_unknown_workflow(
    node: Node, called: Mapping[str, object], inputs: Value, path: PathState, scope: Scope
) -> PathState:
    """The path after a workflow without a known definition: it writes what it is given."""
    task, name = scope.ref(node), called.get("name")
    unseen = (
        f"the workflow {name}, which it is a part of itself"
        if name in scope.ancestors
        else f"the workflow {name}, whose definition is unknown"
    )
    if not isinstance(inputs, Object) or "workspace" not in dict(inputs.items):
        scope.report.add_warning(f"{task} calls {unseen}: nothing shows what that writes")
        return after_no_write(node, unknown_output(node), path, scope)
    scope.report.add_problem(
        task,
        f"{task} hands a workspace to {unseen}: nothing shows what that does to the branch",
        fix="add its definition with another --workflow FILE",
    )
    return use_workspace(node, inputs, Effect.WRITES, path, scope)


def _terminate(node: Node, path: PathState, scope: Scope) -> list[PathState]:
    status = scope.value(node.inputs.get("terminationStatus"), path)
    if status not in (Constant("FAILED"), Constant("TERMINATED")):
        scope.ended.append((path, scope.value(node.inputs.get("workflowOutput"), path)))
    return []


def _recent(paths: Sequence[PathState]) -> frozenset[Write]:
    return frozenset(write for path in paths for write in path.writes_since_fork)


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


# --- Outputs --------------------------------------------------------------------------------------


def _joined_outputs(node: Node, path: PathState) -> Value:
    outputs = {
        reference: project(path.records[reference], ["output"])
        for reference in node.join_on
        if reference in path.records
    }
    if node.kind == "JOIN":
        return Object.of(outputs)
    return next(iter(outputs.values()), unknown_output(node))


def _script_output(node: Node, path: PathState, scope: Scope) -> Value:
    key = _passed_through(node.kind, node.inputs)
    if key is None or key not in node.inputs:
        return unknown_output(node)
    return Object.of({"result": scope.value(node.inputs[key], path)})


def _workflow_output(end: PathState, scope: Scope) -> Value:
    """The workflow's output; without outputParameters it is that of the last task."""
    if scope.definition.outputs:
        return scope.value(scope.definition.outputs, end)
    last = end.records.get(scope.definition.tasks[-1].reference) if scope.definition.tasks else None
    return project(last, ["output"]) if last else Unknown(f"the output of {scope.label}")


def _passed_through(kind: str, inputs: Mapping[str, object]) -> str | None:
    """The input that an INLINE, LAMBDA or JSON_JQ_TRANSFORM task outputs unchanged, if any."""
    script = inputs.get(_SCRIPTS[kind])
    found = _UNCHANGED[kind].fullmatch(script.strip()) if isinstance(script, str) else None
    return found[found.lastindex or 0] if found else None
