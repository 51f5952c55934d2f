"""Conductor's index of workflows: what is asked of it, and what it lists.

The index ignores conditions that it doesn't know, and a server may update it a moment after the
workflow itself. So what it lists is never taken on its word where that matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perago.adapters.conductor.answers import below
from perago.adapters.conductor.fields import document, documents, optional, required
from perago.errors import OrchestratorError
from perago.model.run import RunStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.adapters.conductor.api import Api

PAGE = 1000
"""What is looked at, at most; Conductor lists 5,000 at a time."""

_HIT = "a found workflow"


@dataclass(frozen=True, slots=True)
class Hit:
    """A workflow as the index lists it. ``input`` is text, not JSON, and may be cut off."""

    id: str
    name: str
    status: RunStatus
    started: str
    updated: str
    correlation_id: str | None
    parent_id: str | None
    input: str

    @property
    def started_at(self) -> float:
        return _seconds(self.started)

    @property
    def updated_at(self) -> float:
        return _seconds(self.updated)

    @property
    def has_whole_input(self) -> bool:
        return self.input.endswith("}")

    @property
    def age_order(self) -> tuple[str, str]:
        """Older ones first, the same for everybody who compares."""
        return self.started, self.id


def correlation_of(repository: str, branch: str) -> str:
    """What marks the workflows that we start on a branch."""
    # Queries have no way to say a quote or a comma.
    return f"perago:{quote(repository, safe='')}/{quote(branch, safe='')}"


def status_in(*statuses: RunStatus) -> str:
    return f"status IN ({','.join(statuses)})"


ACTIVE = status_in(*(status for status in RunStatus if status.is_active))


def search(api: Api, *conditions: str, size: int = PAGE, doing: str) -> tuple[list[Hit], int]:
    """The newest workflows that meet all conditions, newest first, and how many there are."""
    path = below(
        "workflow",
        "search",
        start=0,
        size=size,
        sort="startTime:DESC",
        query=" AND ".join(conditions),
    )
    page = document(api.read(path, doing=doing), "search results")
    hits = [_hit_of(raw) for raw in documents(page.get("results"), "found workflows")]
    return sorted(hits, key=lambda hit: hit.age_order, reverse=True), required(
        page, "totalHits", int, "search results"
    )


def started_after(seconds: float) -> str:
    return f"startTime>{int(seconds * 1000)}"


def _hit_of(raw: Mapping[str, Any]) -> Hit:
    started = optional(raw, "startTime", str, _HIT) or ""
    said = required(raw, "status", str, _HIT)
    try:
        status = RunStatus(said)
    except ValueError:
        raise OrchestratorError(f"Conductor sent {_HIT} whose status is {said!r}") from None
    return Hit(
        id=required(raw, "workflowId", str, _HIT),
        name=required(raw, "workflowType", str, _HIT),
        status=status,
        started=started,
        updated=optional(raw, "updateTime", str, _HIT) or started,
        correlation_id=optional(raw, "correlationId", str, _HIT),
        parent_id=optional(raw, "parentWorkflowId", str, _HIT) or None,
        input=optional(raw, "input", str, _HIT) or "",
    )


def _seconds(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        raise OrchestratorError(f"Conductor sent {_HIT} with the time {moment!r}") from None
