"""One task, one directory, one set of params: what a task author's unit test needs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from perago.errors import RuntimeConfigError
from perago.model.commit import DifferenceKind
from perago.model.keys import key_prefix
from perago.testing.bench import Bench
from perago.testing.journal import RecordingJournal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.declare.task import AnyTask
    from perago.model.outcome import AttemptOutcome


@dataclass(frozen=True)
class TaskTrial:
    """How a task did. ``result`` is None unless it completed; paths are relative to the prefix."""

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
    directory: Path | None = None,
) -> TaskTrial:
    """Run a task once, through the whole runtime, on files of your own; no server, no waiting.

    ``files`` maps paths below the task's prefix to contents; ``directory`` is copied instead. The
    runtime's rules hold: guardrails, fences, publication. A failing task doesn't raise: look at
    ``status``, ``reason`` and ``traceback``.
    """
    given = _files_of(task, files, directory)
    raw = params.model_dump(mode="json") if isinstance(params, BaseModel) else dict(params or {})
    with tempfile.TemporaryDirectory(prefix="perago-trial-") as scratch:
        bench = Bench(Path(scratch), repository="trial")
        try:
            return _try(bench, task, raw, given)
        finally:
            bench.close()


def _try(
    bench: Bench, task: AnyTask, params: dict[str, object], files: Mapping[str, bytes | str]
) -> TaskTrial:
    start = key_prefix(task.workspace.prefix) if task.workspace else ""
    before = bench.write({start + path: data for path, data in files.items()}) if files else None
    before = before or bench.head
    journal = RecordingJournal()
    bench.start(task, params={task.name: params} if params else None)
    outcome = bench.attempt(task, bench.runtime(journal=journal))
    return TaskTrial(
        status=str(outcome.report.status),
        result=_result_of(task, outcome),
        reason=outcome.report.reason,
        files={key[len(start) :]: data for key, data in bench.read().items()},
        changes=_changes(bench, before, len(start)),
        log=journal.events,
        traceback="\n".join(journal.tracebacks),
    )


def _result_of(task: AnyTask, outcome: AttemptOutcome) -> BaseModel | None:
    if not outcome.report.completed:
        return None
    result: BaseModel = task.result_model.model_validate(outcome.report.output["result"])
    return result


def _changes(bench: Bench, before: str, skip: int) -> dict[str, list[str]]:
    changes: dict[str, list[str]] = {str(kind): [] for kind in DifferenceKind}
    for difference in bench.store.diff(bench.repository, before, bench.head):
        changes[difference.kind].append(difference.key[skip:])
    return changes


def _files_of(
    task: AnyTask, files: Mapping[str, bytes | str] | None, directory: Path | None
) -> Mapping[str, bytes | str]:
    if (files or directory) and task.workspace is None:
        raise RuntimeConfigError(
            f"task {task.name} has no workspace, so it can't be given files",
            fix="leave out files and directory",
        )
    if files and directory:
        raise RuntimeConfigError("give files or a directory, not both")
    if directory is None:
        return files or {}
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
