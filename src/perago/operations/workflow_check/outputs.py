"""What tasks that change no workspace put out, as far as the definition tells."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perago.operations.workflow_check.survey import Frame, computed_by
from perago.operations.workflow_check.values import Computed, Fields, Value, project

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.operations.workflow_check.definition import Node
    from perago.operations.workflow_check.paths import Path

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
