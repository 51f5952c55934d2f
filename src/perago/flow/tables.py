"""Guardrails that look into the data: what they found goes into the log and the publication."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.declare.guardrails import violated
from perago.model.tables import describe

if TYPE_CHECKING:
    from perago.declare.guardrails import Phase
    from perago.declare.workspace import WorkspaceSpec
    from perago.ports.engine import StagedChecks
    from perago.ports.journal import Journal


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
