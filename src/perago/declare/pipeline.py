"""``pipeline(name, [steps])``: a serial chain of tasks over one workspace."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perago.declare.step import ResultReference, Step
from perago.declare.task import AnyTask, Task, by_name
from perago.declare.wire_json import as_json, params_errors, wire_fields, wire_name
from perago.errors import RuntimeConfigError, TaskDefinitionError
from perago.model.declaration import did_you_mean, shown
from perago.model.run import ResultField, RunPlan, StepPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True, eq=False)
class PipelineStep:
    """A step of a pipeline. ``params`` holds JSON values and :class:`ResultField`s."""

    reference: str
    task: AnyTask
    params: Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class Pipeline:
    """A declared pipeline. A process finds it by ``target``: ``module:attribute``."""

    name: str
    steps: tuple[PipelineStep, ...]
    target: str

    @property
    def tasks(self) -> list[AnyTask]:
        """Its tasks, each once, in the order of their first step."""
        return list(by_name(step.task for step in self.steps).values())

    def resolve_step(self, key: str) -> PipelineStep:
        """The step that a user names: by reference, task name, its last part, or function name.

        Raises RuntimeConfigError if no step, or more than one, has that name.
        """
        for name_of in _STEP_NAMES:
            found = [step for step in self.steps if name_of(step) == key]
            if len(found) == 1:
                return found[0]
            if found:
                references = ", ".join(step.reference for step in found)
                raise RuntimeConfigError(
                    f"pipeline {self.name!r}: {key!r} means several steps: {references}",
                    fix="use one of these references instead",
                )
        raise RuntimeConfigError(
            f"pipeline {self.name!r} has no step {key!r}",
            fix=did_you_mean(key, [self.short_name(step) for step in self.steps]),
        )

    def short_name(self, step: PipelineStep) -> str:
        """The shortest key that means this step alone."""
        for name_of in reversed(_STEP_NAMES):
            key = name_of(step)
            if sum(any(s(other) == key for s in _STEP_NAMES) for other in self.steps) == 1:
                return key
        return step.reference

    def plan(self, params: Mapping[str, Mapping[str, object]] | None = None) -> RunPlan:
        """The run to start. ``params``, by step, override those of the declaration.

        Raises RuntimeConfigError naming every field that is missing, unknown or wrong.
        """
        overrides = self._overrides(params or {})
        problems: list[tuple[str, str]] = []
        steps = []
        for step in self.steps:
            complete = {**step.params, **overrides.get(step.reference, {})}
            problems += self._problems(step, complete)
            steps.append(_step_plan(step, complete))
        if problems:
            raise RuntimeConfigError(
                f"pipeline {self.name!r}: {'; '.join(problem for problem, _ in problems)}",
                fix=" ".join(dict.fromkeys(fix for _, fix in problems)),
            )
        return RunPlan(self.name, self.target, tuple(steps))

    def _overrides(
        self, params: Mapping[str, Mapping[str, object]]
    ) -> dict[str, dict[str, object]]:
        resolved: dict[str, dict[str, object]] = {}
        for key, values in params.items():
            step = self.resolve_step(key)
            model = step.task.params_model
            fields = resolved.setdefault(step.reference, {})
            for name, value in values.items():
                wire = wire_name(model, name)
                if wire not in wire_fields(model):
                    raise RuntimeConfigError(
                        f"step {self.short_name(step)!r}: {model.__name__} has no field {name!r}",
                        fix=did_you_mean(name, wire_fields(model)),
                    )
                try:
                    fields[wire] = as_json(value)
                except ValueError as error:
                    raise RuntimeConfigError(
                        f"step {self.short_name(step)!r}: {name} is {shown(value)}, which isn't "
                        f"JSON: {error}",
                        fix="give a number, text, a list or an object",
                    ) from None
        return resolved

    def _problems(self, step: PipelineStep, params: Mapping[str, object]) -> list[tuple[str, str]]:
        """The problems of a step's complete params, each with its fix."""
        pending = frozenset(k for k, v in params.items() if isinstance(v, ResultField))
        known = {k: v for k, v in params.items() if k not in pending}
        task, key = step.task, self.short_name(step)
        errors = params_errors(task.params_model, known, pending=pending, strict=task.strict_params)
        return [
            (f"{key}.{error}", f"--param {key}.{error.path}=…")
            if error.field
            else (f"{key}: {error.expected}", f"--param {key}.{next(iter(params), '…')}=…")
            for error in errors
        ]


def pipeline(name: str, steps: Sequence[AnyTask | Step[Any]]) -> Pipeline:
    """Declare a serial chain: each step starts from what the one before it published.

    A step is a task or ``task.with_params(…)``, where a value may be a result field of an earlier
    step. Raises TaskDefinitionError for an empty chain, for a wrong name, and for a result of a
    step that isn't earlier in the chain.
    """
    _check_name(name)
    _check_is_list(name, steps)
    chain = [_step(name, step) for step in steps]
    if not chain:
        raise TaskDefinitionError(
            f"pipeline {name!r} has no steps", fix=f"write pipeline({name!r}, [first_task, …])"
        )
    by_name(step.task for step in chain)
    references = _references(chain)
    where = f"pipeline {name!r}"
    placed = tuple(
        PipelineStep(
            reference=reference,
            task=step.task,
            params={
                field: _earlier_result(value, chain, index, f"{where}: {reference}.{field}")
                if isinstance(value, ResultReference)
                else value
                for field, value in step.params.items()
            },
        )
        for index, (reference, step) in enumerate(zip(references, chain, strict=True))
    )
    module = sys._getframe(1).f_globals.get("__name__", "__main__")  # noqa: SLF001 - its caller's
    return Pipeline(name, placed, f"{module}:{name}")


def _check_name(name: object) -> None:
    # Stricter than for tasks: Conductor may refuse a dot in a workflow's name.
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", name):
        raise TaskDefinitionError(
            f"pipeline: name can't be {name!r}",
            fix="use letters, digits, '_' and '-', first a letter or digit, such as 'songs'",
        )


def _check_is_list(name: str, steps: object) -> None:
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        raise TaskDefinitionError(
            f"pipeline {name!r}: the second argument must be a list of tasks, not {shown(steps)}",
            fix=f"write pipeline({name!r}, [first_task, …])",
        )


def _step(pipeline_name: str, step: object) -> Step[Any]:
    if isinstance(step, Step):
        return step
    if isinstance(step, Task):
        return step.with_params()
    raise TaskDefinitionError(
        f"pipeline {pipeline_name!r}: {shown(step)} is neither a task nor task.with_params(…)",
        fix="put @task(…) on that function, and list the function itself, uncalled",
    )


def _references(chain: Sequence[Step[Any]]) -> list[str]:
    """A unique name for each step, without dots: Conductor's expressions split on them."""
    taken: list[str] = []
    for step in chain:
        base = re.sub(r"[^A-Za-z0-9_]", "_", step.task.name)
        reference, number = base, 2
        while reference in taken:
            reference, number = f"{base}_{number}", number + 1
        taken.append(reference)
    return taken


def _earlier_result(
    value: ResultReference, chain: Sequence[Step[Any]], index: int, where: str
) -> ResultField:
    """The step whose result the step at ``index`` uses. It must be earlier, and unique."""
    places = [i for i, step in enumerate(chain) if value.source in (step, step.task)]
    references = _references(chain)
    if not places:
        raise TaskDefinitionError(
            f"{where} takes {value.written}, which isn't a step of this pipeline",
            fix=f"put that step into the list, before {references[index]}",
        )
    if len(places) > 1:
        task = chain[places[0]].task
        attributes = ".".join(("first.result", *value.path))
        raise TaskDefinitionError(
            f"{where} takes {value.written}, but that task is {len(places)} times in this pipeline",
            fix=f"name the step you mean: first = {task.__name__}.with_params(…), "
            f"then {attributes}",
        )
    if places[0] == index:
        raise TaskDefinitionError(
            f"{where} takes {value.written}, its own result",
            fix="refer to the result of an earlier step",
        )
    if places[0] > index:
        raise TaskDefinitionError(
            f"{where} takes {value.written}, which isn't known before {references[index]} runs",
            fix=f"refer to an earlier step's result, or move {references[places[0]]} before "
            f"{references[index]}",
        )
    return ResultField(references[places[0]], value.path)


def _step_plan(step: PipelineStep, params: Mapping[str, object]) -> StepPlan:
    return StepPlan(
        reference=step.reference,
        task_name=step.task.name,
        module=step.task.module,
        uses_workspace=step.task.workspace is not None,
        params=params,
        controls=step.task.controls,
    )


_STEP_NAMES: tuple[Callable[[PipelineStep], str], ...] = (
    lambda step: step.reference,
    lambda step: step.task.name,
    lambda step: step.task.name.rpartition(".")[2],
    lambda step: step.task.__name__,
)
