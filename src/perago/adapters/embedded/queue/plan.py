"""A run's plan as JSON, so that a later process can go on without the objects it came from."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perago.model.run import ResultField, RunPlan, StepPlan

if TYPE_CHECKING:
    from collections.abc import Mapping

# Every params value is wrapped in one of these, so that no literal can be taken for a reference.
_LITERAL = "value"
_RESULT = "result_of"


def encode_plan(plan: RunPlan) -> str:
    """The plan as JSON text. Raises TypeError if a params value isn't a JSON value."""
    steps = [_encode_step(step) for step in plan.steps]
    return json.dumps({"name": plan.name, "target": plan.target, "steps": steps})


# Plans never change once stored, and every poll and report of a run needs its plan.
@lru_cache(maxsize=256)
def decode_plan(text: str) -> RunPlan:
    """The plan that :func:`encode_plan` was given."""
    raw = json.loads(text)
    steps = tuple(_decode_step(step) for step in raw["steps"])
    return RunPlan(name=raw["name"], target=raw["target"], steps=steps)


def _encode_step(step: StepPlan) -> dict[str, object]:
    return {
        "reference": step.reference,
        "task_name": step.task_name,
        "module": step.module,
        "uses_workspace": step.uses_workspace,
        "params": {name: _encode_value(value) for name, value in step.params.items()},
        "controls": step.controls.model_dump(mode="json"),
    }


def _decode_step(raw: Mapping[str, Any]) -> StepPlan:
    from perago.model.controls import TaskControls

    return StepPlan(
        reference=raw["reference"],
        task_name=raw["task_name"],
        module=raw["module"],
        uses_workspace=raw["uses_workspace"],
        params={name: _decode_value(value) for name, value in raw["params"].items()},
        controls=TaskControls.model_validate(raw["controls"]),
    )


def _encode_value(value: object) -> dict[str, object]:
    if isinstance(value, ResultField):
        return {_RESULT: value.reference, "path": list(value.path)}
    return {_LITERAL: value}


def _decode_value(raw: Mapping[str, Any]) -> object:
    if _RESULT in raw:
        return ResultField(raw[_RESULT], tuple(raw["path"]))
    return raw[_LITERAL]
