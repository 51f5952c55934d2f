"""One task, one directory, one set of params: what a task author's unit test needs."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel

from perago.declare.step import Step
from perago.declare.task import Task
from perago.declare.wire_json import as_json, wire_fields, wire_name
from perago.errors import RuntimeConfigError
from perago.flow.lifecycle import run_attempt
from perago.model.commit import DifferenceKind
from perago.model.declaration import shown
from perago.model.run import RunPlan, StepPlan
from perago.model.workspace import key_prefix
from perago.operations.import_export import import_directory
from perago.testing.bench import Bench, RecordingJournal

if TYPE_CHECKING:
    from perago.declare.task import AnyTask
    from perago.model.attempt import Delivery
    from perago.model.outcome import AttemptOutcome


@dataclass(frozen=True)
class TaskTrial:
    """How a task did. ``result`` is None unless it completed; paths are relative to the prefix.

    ``files`` is what the workspace holds in the end, all of it in memory.
    """

    status: str
    result: BaseModel | None
    reason: str | None
    files: Mapping[str, bytes]
    changes: Mapping[str, list[str]] = field(default_factory=dict)
    log: list[dict[str, object]] = field(default_factory=list)
    traceback: str = ""

    @property
    def completed(self) -> bool:
        return self.status == "COMPLETED"


def run_task(
    task: AnyTask,
    params: BaseModel | Mapping[str, object] | None = None,
    *,
    files: Mapping[str, bytes | str] | None = None,
    directory: Path | str | None = None,
) -> TaskTrial:
    """Run a task once, through the whole runtime, on files of your own; no server, no waiting.

    ``files`` maps paths below the task's prefix to contents; ``directory`` is copied instead. The
    runtime's rules hold: params, guardrails, fences, publication. A failing task doesn't raise:
    look at ``status``, ``reason`` and ``traceback``.

    Raises RuntimeConfigError if what was given isn't a task or can't be its files, and
    UnsupportedFileError, as an import would, for what is in the directory and can't be stored.
    """
    _assert_task(task)
    source = None if directory is None else Path(directory)
    _assert_files_fit(task, files, source)
    with tempfile.TemporaryDirectory(prefix="perago-trial-") as scratch:
        bench = Bench(Path(scratch), repository="trial")
        try:
            _fill(bench, task, files or {}, source)
            return _try(bench, task, _as_sent(task, params))
        finally:
            bench.close()


def _assert_task(given: object) -> None:
    if isinstance(given, Task):
        return
    fix = "decorate it with @task(name=…, owner_email=…), and give it uncalled"
    if isinstance(given, Step):
        fix = f"give the task itself, and params of its own: run_task({given.task.__name__}, …)"
    raise RuntimeConfigError(f"{shown(given)} is not a task", fix=fix)


def _assert_files_fit(
    task: AnyTask, files: Mapping[str, bytes | str] | None, directory: Path | None
) -> None:
    if (files or directory) and task.workspace is None:
        raise RuntimeConfigError(
            f"task {task.name} has no workspace, so it can't be given files",
            fix="leave out files and directory",
        )
    if files is not None and directory is not None:
        raise RuntimeConfigError(
            f"files and a directory, {str(directory)!r}, are given: it takes one, not both",
            fix="leave out files= or directory=",
        )
    if directory is not None and not directory.is_dir():
        problem = "is not a directory" if directory.exists() else "doesn't exist"
        raise RuntimeConfigError(
            f"directory {str(directory.absolute())!r} {problem}",
            fix="give directory= the path of a directory, such as Path(__file__).parent / 'data'",
        )


def _fill(
    bench: Bench, task: AnyTask, files: Mapping[str, bytes | str], directory: Path | None
) -> None:
    """Make these files, or the directory's, what the branch has below the task's prefix."""
    if task.workspace is None:
        return
    start = key_prefix(task.workspace.prefix)
    if files:
        bench.write({start + path: data for path, data in files.items()})
    if directory is not None:
        import_directory(
            bench.store,
            repository=bench.repository,
            branch=bench.branch,
            directory=directory,
            prefix=task.workspace.prefix,
        )


def _as_sent(task: AnyTask, params: object) -> object:
    """Params as a scheduler would send them: JSON values by wire name.

    What isn't JSON stays as it is: refusing it is the runtime's business.
    """
    if params is None:
        return {}
    if isinstance(params, BaseModel):
        # No warnings: a test may well construct a model that is wrong.
        dumped = params.model_dump(mode="json", by_alias=True, round_trip=True, warnings=False)
        return _as_read(type(params), dumped)
    if isinstance(params, Mapping):
        return {wire_name(task.params_model, k): _as_json(v) for k, v in params.items()}
    return params


def _as_read(model: type[BaseModel], dumped: Mapping[str, object]) -> dict[str, object]:
    """A dumped model's fields under the names it reads them by; what it only computes is gone."""
    reads = dict(zip(wire_fields(model, "serialization"), wire_fields(model), strict=True))
    return {reads[name]: value for name, value in dumped.items() if name in reads}


def _as_json(value: object) -> object:
    try:
        return as_json(value)
    except ValueError:
        return value


def _try(bench: Bench, task: AnyTask, params: object) -> TaskTrial:
    skip = len(key_prefix(task.workspace.prefix)) if task.workspace else 0
    before = bench.head
    journal = RecordingJournal()
    outcome = run_attempt(_deliver(bench, task, params), task, bench.runtime(journal=journal))
    return TaskTrial(
        status=str(outcome.report.status),
        result=_result_of(task, outcome),
        reason=outcome.report.reason,
        files={key[skip:]: data for key, data in bench.read().items()},
        changes=_changes(bench, before, skip),
        log=journal.events,
        traceback="\n".join(journal.tracebacks),
    )


def _deliver(bench: Bench, task: AnyTask, params: object) -> Delivery:
    """The task's only attempt, with these params unseen by any check but the attempt's own."""
    step = StepPlan(
        reference="trial",
        task_name=task.name,
        module=task.module,
        uses_workspace=task.workspace is not None,
        params={},
        controls=task.controls,
    )
    plan = RunPlan("trial", f"{task.module}:{task.__name__}", (step,))
    bench.queue.start(plan, bench.workspace() if step.uses_workspace else None)
    delivery = bench.poll(task)
    return replace(delivery, input={**delivery.input, "params": params})


def _result_of(task: AnyTask, outcome: AttemptOutcome) -> BaseModel | None:
    if not outcome.report.completed:
        return None
    model: type[BaseModel] = task.result_model
    dumped = cast("Mapping[str, object]", outcome.report.output["result"])
    # Through JSON: a model with strict=True then still reads dates from text.
    return model.model_validate_json(json.dumps(_as_read(model, dumped)))


def _changes(bench: Bench, before: str, skip: int) -> dict[str, list[str]]:
    changes: dict[str, list[str]] = {str(kind): [] for kind in DifferenceKind}
    for difference in bench.store.diff(bench.repository, before, bench.head):
        changes[difference.kind].append(difference.key[skip:])
    return changes
