"""Goes every way through a workflow, and notes each task that takes the wrong workspace."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product

from perago.errors import UnsafeWorkflowError
from perago.operations.workflow_check.context import Frame, Survey, computed_by, failed, ran, record
from perago.operations.workflow_check.definition import (
    Definition,
    Node,
    read_definition,
    variables_set_by,
)
from perago.operations.workflow_check.path_state import (
    Path,
    Place,
    Unawaited,
    Write,
    branches_of,
    distinct,
    joined,
)
from perago.operations.workflow_check.values import (
    Branch,
    Computed,
    Fields,
    Known,
    Value,
    project,
)
from perago.operations.workflow_check.workspace_rule import (
    Effect,
    after_worker_task,
    look_at_output,
    take,
)

# --- What tasks that change no workspace put out, as far as the definition tells ---
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


def joined_outputs(node: Node, path: Path) -> Value:
    outputs = {
        reference: project(path.records[reference], ["output"])
        for reference in node.join_on
        if reference in path.records
    }
    if node.kind == "JOIN":
        return Fields.of(outputs)
    return next(iter(outputs.values()), computed_by(node))


def script_output(node: Node, path: Path, frame: Frame) -> Value:
    key = _passed_through(node.kind, node.inputs)
    if key is None or key not in node.inputs:
        return computed_by(node)
    return Fields.of({"result": frame.value(node.inputs[key], path)})


def workflow_output(end: Path, frame: Frame) -> Value:
    """What the workflow puts out; where it doesn't say, that is what its last task does."""
    if frame.definition.outputs:
        return frame.value(frame.definition.outputs, end)
    last = end.records.get(frame.definition.tasks[-1].reference) if frame.definition.tasks else None
    return project(last, ["output"]) if last else Computed(f"what {frame.label} puts out")


def _passed_through(kind: str, inputs: Mapping[str, object]) -> str | None:
    """The input that an INLINE, LAMBDA or JSON_JQ_TRANSFORM task puts out as it came, if any."""
    script = inputs.get(_SCRIPTS[kind])
    found = _UNCHANGED[kind].fullmatch(script.strip()) if isinstance(script, str) else None
    return found[found.lastindex or 0] if found else None


MOST_PATHS = 500
_TOUCH_NO_WORKSPACE = frozenset(
    {
        "EVENT",
        "HTTP",
        "HTTP_POLL",
        "KAFKA_PUBLISH",
        "NOOP",
        "WAIT",
        "WAIT_FOR_WEBHOOK",
    }
)


def walk(definition: Definition, inputs: Value, survey: Survey) -> None:
    """Note everything that is wrong with a workflow started with these inputs."""
    frame = Frame(survey, definition.name, definition, inputs, (definition.name,))
    for end in _along(definition.tasks, [Path()], frame):
        look_at_output(end, frame)


def _along(tasks: Sequence[Node], paths: Sequence[Path], frame: Frame) -> list[Path]:
    """Every path on which all these tasks have run."""
    reached = list(paths)
    for node, following in zip(tasks, (*tasks[1:], None), strict=False):
        steps = (_step(node, following, path, frame) for path in reached)
        reached = distinct(chain.from_iterable(steps))
        _assert_few(reached, node, frame)
    return reached


def _assert_few(paths: Collection[object], node: Node, frame: Frame) -> None:
    if len(paths) > MOST_PATHS:
        raise UnsafeWorkflowError(
            f"workflow {frame.label!r} can reach {node.reference} in more than {MOST_PATHS:,} ways "
            "that leave workspaces differently: too many to follow",
            fix="have every case of a SWITCH put out one workspace, or split the workflow",
        )


def _step(  # noqa: C901 - one row per kind of task
    node: Node, following: Node | None, path: Path, frame: Frame
) -> Sequence[Path]:
    match node.kind:
        case "FORK_JOIN" | "FORK":
            return _fork(node, following, path, frame)
        case "FORK_JOIN_DYNAMIC":
            return _dynamic_fork(node, path, frame)
        case "JOIN" | "EXCLUSIVE_JOIN":
            return [ran(node, joined_outputs(node, path), path, frame)]
        case "SWITCH" | "DECISION":
            after = ran(node, computed_by(node), path, frame)
            return [end for case in node.cases for end in _along(case, [after], frame)]
        case "DO_WHILE":
            return _loop(node, path, frame)
        case "SUB_WORKFLOW":
            return _sub_workflow(node, path, frame)
        case "START_WORKFLOW":
            return _started_workflow(node, path, frame)
        case "SET_VARIABLE":
            values = {name: frame.value(value, path) for name, value in node.inputs.items()}
            return [path.with_variables(values)]
        case "TERMINATE":
            return _end(node, path, frame)
        case "INLINE" | "LAMBDA" | "JSON_JQ_TRANSFORM":
            return [ran(node, script_output(node, path, frame), path, frame)]
        case kind if kind in _TOUCH_NO_WORKSPACE:
            return [ran(node, computed_by(node), path, frame)]
        case _:
            return after_worker_task(node, path, frame)


# --- forks ----------------------------------------------------------------------------------------


def _fork(node: Node, following: Node | None, path: Path, frame: Frame) -> Sequence[Path]:
    """A JOIN waits for the tasks it names and no other: what comes after them goes on."""
    join_on = following.join_on if following and following.kind == "JOIN" else ()
    awaited: list[list[Path]] = []
    written: list[frozenset[Write]] = []
    goes_on: set[Write] = set()
    unsteady = path.unsteady
    for index, tasks in enumerate(node.forks):
        count = max((n for n, t in enumerate(tasks, 1) if t.reference in join_on), default=0)
        others = (*node.forks[:index], *node.forks[index + 1 :])
        start = path.forked(frozenset().union(*map(variables_set_by, others)))
        done = _along(tasks[:count], [start], frame)
        rest = _along(tasks[count:], done, frame)
        awaited.append(done)
        written.append(_recent(done) | _recent(rest))
        goes_on |= _recent(rest) - _recent(done)
        unsteady |= variables_set_by(tasks[count:])
    join = following.reference if following else node.reference
    fix = f"name the last task of that branch of the fork in joinOn of {join}"
    beside = frozenset(Unawaited(write, fix) for write in goes_on)
    contested = _contested(node, written, frame)
    return [
        replace(
            end,
            beside=end.beside | beside,
            unsteady=unsteady,
            excused=end.excused | contested,
        )
        for end in (joined(path, together) for together in product(*awaited))
    ]


def _contested(node: Node, written: Sequence[frozenset[Write]], frame: Frame) -> frozenset[Branch]:
    """What two branches of the fork write."""
    why = f"they are in two branches of the fork {node.reference}"
    fix = (
        "put them one after the other, each taking the workspace that the one before puts out, "
        "or give each a branch of its own"
    )
    return frozenset(
        other.branch
        for index, later in enumerate(written)
        for earlier in written[:index]
        for one, other in product(sorted(earlier, key=str), sorted(later, key=str))
        if frame.survey.side_by_side(one, other, why, fix)
    )


def _dynamic_fork(node: Node, path: Path, frame: Frame) -> Sequence[Path]:
    if frame.definition.mentions_workspaces and not _forks_harmlessly(node, frame):
        place = frame.place(node)
        frame.notes.refuse(
            place,
            f"{place} decides only when it runs which tasks run side by side: nothing shows "
            "that they don't write one branch",
            fix="have it fork one task that is known to write nothing (forkTaskName, with its "
            "module named in this command), or a workflow without workspaces",
        )
    return [ran(node, computed_by(node), path, frame)]


def _forks_harmlessly(node: Node, frame: Frame) -> bool:
    workflow = node.inputs.get("forkTaskWorkflow")
    if isinstance(workflow, str):
        forked = frame.survey.resolve(workflow, None)
        return forked is not None and not forked.mentions_workspaces
    effect = frame.survey.effects.get(str(node.inputs.get("forkTaskName")))
    return effect in (Effect.READS, Effect.NONE)


# --- loops ----------------------------------------------------------------------------------------


def _loop(node: Node, path: Path, frame: Frame) -> Sequence[Path]:
    """Round after round, until a round ends as one before has."""
    ends: dict[object, Path] = {}
    begins = [path]
    while begins:
        reached = _along(node.loop, begins, frame)
        begins = [end for end in reached if end.fingerprint not in ends]
        ends |= {end.fingerprint: end for end in reached}
        _assert_few(ends, node, frame)
    return [ran(node, computed_by(node), end, frame) for end in ends.values()]


# --- other workflows ------------------------------------------------------------------------------


def _sub_workflow(node: Node, path: Path, frame: Frame) -> Sequence[Path]:
    inputs = frame.value(node.inputs, path)
    called = _object(node.more.get("subWorkflowParam"))
    inner = _called(called, "workflowDefinition", frame)
    if inner is None:
        return [_unseen(node, called, inputs, path, frame)]
    place = frame.place(node)
    ends = _inside(inner, inputs, place, path, frame)
    done = [
        path.after(end, place, record(inputs, output, branches_of(end.writes)))
        for end, output in ends
    ]
    if not node.optional:
        return done
    # Where it fails, it may have published all, some or none of what it would have.
    broken_off = [path.after(end, place, failed(node)) for end, _ in ends]
    return [*done, *broken_off, path.ran(node.reference, failed(node))]


def _started_workflow(node: Node, path: Path, frame: Frame) -> Sequence[Path]:
    called = _object(node.inputs.get("startWorkflow"))
    inputs = frame.value(_object(called.get("input")), path)
    inner = _called(called, "workflowDef", frame)
    place = frame.place(node)
    if inner is None:
        ends = [_unseen(node, called, inputs, path.within(), frame)]
    else:
        ends = [end for end, _ in _inside(inner, inputs, place, path, frame)]
    fix = f"make {place.reference} a SUB_WORKFLOW, which is waited for"
    writes = {write for end in ends for write in end.writes}
    for write in sorted(writes, key=str):
        if write.branch in path.heads:
            frame.notes.refuse(
                place,
                f"{place} starts a second workflow, which writes {write.branch} while this "
                "one, which writes it too, is active",
                fix=fix,
            )
    beside = path.beside.union(*(end.beside for end in ends))
    after = replace(path, beside=beside | {Unawaited(write, fix) for write in writes})
    return [ran(node, computed_by(node), after, frame)]


def _called(called: Mapping[str, object], inline: str, frame: Frame) -> Definition | None:
    """The workflow that is called, if its definition is at hand and isn't an outer one."""
    definition = called.get(inline)
    if isinstance(definition, Mapping):
        return read_definition(definition)
    name, version = called.get("name"), called.get("version")
    if not isinstance(name, str) or "${" in name or name in frame.ancestors:
        return None
    return frame.survey.resolve(name, version if isinstance(version, int) else None)


def _inside(
    inner: Definition, inputs: Value, place: Place, path: Path, frame: Frame
) -> list[tuple[Path, Value]]:
    """Each way through another workflow, with what it puts out there."""
    label = f"{place.workflow}/{place.reference}"
    below = Frame(frame.survey, label, inner, inputs, (*frame.ancestors, inner.name))
    ends = _along(inner.tasks, [path.within()], below)
    for end in ends:
        look_at_output(end, below)
    return [*((end, workflow_output(end, below)) for end in ends), *below.ended]


def _unseen(
    node: Node, called: Mapping[str, object], inputs: Value, path: Path, frame: Frame
) -> Path:
    """After a workflow whose definition isn't at hand: it writes what it is given."""
    place, name = frame.place(node), called.get("name")
    unseen = (
        f"the workflow {name}, which it is a part of itself"
        if name in frame.ancestors
        else f"the workflow {name}, whose definition isn't at hand"
    )
    if not isinstance(inputs, Fields) or "workspace" not in dict(inputs.items):
        frame.notes.warn(f"{place} calls {unseen}: nothing shows what that writes")
        return ran(node, computed_by(node), path, frame)
    frame.notes.refuse(
        place,
        f"{place} hands a workspace to {unseen}: nothing shows what that does to the branch",
        fix="give its definition as well, with another --workflow FILE",
    )
    return take(node, inputs, Effect.WRITES, path, frame)


def _end(node: Node, path: Path, frame: Frame) -> list[Path]:
    status = frame.value(node.inputs.get("terminationStatus"), path)
    if status not in (Known("FAILED"), Known("TERMINATED")):
        frame.ended.append((path, frame.value(node.inputs.get("workflowOutput"), path)))
    return []


def _recent(paths: Sequence[Path]) -> frozenset[Write]:
    return frozenset(write for path in paths for write in path.recent)


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
