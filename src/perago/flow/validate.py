"""Step 1: is the delivered input what the task declared? Pure, and before anything is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from perago.declare.guardrails import violated
from perago.errors import TaskInputError
from perago.model.tables import describe
from perago.model.workspace import WorkspaceRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from perago.declare.guardrails import Phase
    from perago.declare.task import AnyTask
    from perago.declare.workspace import WorkspaceSpec
    from perago.ports.engine import StagedChecks
    from perago.ports.environment import Journal


def parse_input(task: AnyTask, raw: Mapping[str, object]) -> tuple[WorkspaceRef | None, BaseModel]:
    """The workspace (None for a workspace-free task) and params of a delivery.

    Raises TaskInputError, naming the field and its value, for anything but exactly that.
    """
    expected = {"workspace", "params"} if task.workspace else {"params"}
    _require_keys(task.name, raw, expected)
    workspace = _parse_workspace(task.name, raw["workspace"]) if task.workspace else None
    return workspace, task.parse_params(raw["params"])


def _require_keys(task_name: str, raw: Mapping[str, object], expected: set[str]) -> None:
    missing, extra = expected - raw.keys(), raw.keys() - expected
    if not missing and not extra:
        return
    problems = [f"{key!r} is missing" for key in sorted(missing)]
    problems += [f"{key!r} is not expected" for key in sorted(extra)]
    raise TaskInputError(
        f"task {task_name}: input has exactly the keys {_spell(expected)}: {'; '.join(problems)}",
        fix=f"schedule it with {_spell(expected)} and nothing else at the top level",
    )


def _parse_workspace(task_name: str, raw: object) -> WorkspaceRef:
    try:
        return WorkspaceRef.model_validate(raw)
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(map(str, ('workspace', *e['loc'])))}: {e['msg']}, got {e['input']!r:.80}"
            for e in error.errors()
        )
        raise TaskInputError(
            f"task {task_name}: {details}",
            fix='give workspace as {"repository": …, "branch": …, "ref_type": "commit", "ref": …}',
        ) from None


def _spell(keys: set[str]) -> str:
    return " and ".join(repr(key) for key in sorted(keys, reverse=True))


# --- Guardrails that look into the data: what they found goes into the log and the ---


def check_tables(
    checks: StagedChecks | None, spec: WorkspaceSpec, phase: Phase, journal: Journal
) -> list[dict[str, object]]:
    """A document of each table that was looked at. Raises GuardrailViolation, naming all of it."""
    rules = spec.tables_of(phase)
    if not rules:
        return []
    assert checks is not None  # noqa: S101 - without Spark a declaration can't ask for tables
    reports = checks.check_tables(rules, spec.sources(phase))
    documents = [{"phase": phase, **report.document()} for report in reports]
    for document in documents:
        journal.event("table", **document)
    if sentences := [sentence for report in reports for sentence in describe(report)]:
        raise violated(sentences, phase)
    return documents
