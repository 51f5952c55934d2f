"""Which active workflows are on a branch, whoever started them."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perago.adapters.conductor.responses import api_path, document, documents, optional, required
from perago.adapters.conductor.workflows import branch_of, is_active
from perago.errors import OrchestratorError
from perago.model.run import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perago.adapters.conductor.client import ConductorClient


# --- Conductor's index of workflows: what is asked of it, and what it lists ---
PAGE = 1000
"""What is looked at, at most; Conductor lists 5,000 at a time."""
_HIT = "a found workflow"


@dataclass(frozen=True, slots=True)
class WorkflowSummary:
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


def search(
    api: ConductorClient, *conditions: str, size: int = PAGE, doing: str
) -> tuple[list[WorkflowSummary], int]:
    """The newest workflows that meet all conditions, newest first, and how many there are."""
    path = api_path(
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


def _hit_of(raw: Mapping[str, Any]) -> WorkflowSummary:
    started = optional(raw, "startTime", str, _HIT) or ""
    said = required(raw, "status", str, _HIT)
    try:
        status = RunStatus(said)
    except ValueError:
        raise OrchestratorError(f"Conductor sent {_HIT} whose status is {said!r}") from None
    return WorkflowSummary(
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


LOOK_ANEW_SECONDS = 10.0
"""How long a list of the active workflows is good for, with the newer ones added to it."""
_OVERLAP_SECONDS = 1.0  # what the index got to know a little later than its neighbours
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)


class ActiveWorkflows:
    """The index lists the active workflows and shows their input as text.

    What the text leaves open is read from the workflow itself, once: an input never changes.
    """

    def __init__(self, api: ConductorClient) -> None:
        self._api = api
        self._guard = threading.Lock()
        self._known: dict[str, WorkflowSummary] = {}
        self._places: dict[str, tuple[str, str] | None] = {}
        self._looked_at = self._asked_at = -LOOK_ANEW_SECONDS

    def active_on(self, repository: str, branch: str) -> list[WorkflowSummary]:
        """The RUNNING and PAUSED workflows whose input names this branch, oldest first.

        Of more than a thousand active ones, the oldest may be missed if somebody else started them.
        """
        with self._guard:
            self._look_anew(repository, branch)
            return self._on(repository, branch)

    def writers(
        self, repository: str, branch: str, *, asking: str | None, seconds_old: float
    ) -> list[WorkflowSummary]:
        """As :meth:`active_on`, for one who asks often: most often by one small request, or none.

        Asked so, a workflow that is retried after it had ended is noticed a few seconds later.
        """
        with self._guard:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_ANEW_SECONDS or not self._known:
                self._look_anew(repository, branch)
                return self._on(repository, branch)
            fresh = {asking} if asking in self._known else set()
            if not fresh or now - self._asked_at >= seconds_old:
                fresh |= self._look_for_newer(repository, branch)
            if asking in self._known:  # it asks for the branch that it was given to work on
                self._places.setdefault(asking, (repository, branch))
            found = self._on(repository, branch)
            return [hit for hit in found if hit.id in fresh or self._goes_on(hit)]

    def _look_anew(self, repository: str, branch: str) -> None:
        doing = f"looking for workflows on {repository}/{branch}"
        began = time.monotonic()
        active, total = search(self._api, ACTIVE, doing=doing)
        if total > PAGE:
            ours = f"correlationId='{correlation_of(repository, branch)}'"
            active += search(self._api, ours, ACTIVE, doing=doing)[0]
        self._known = {hit.id: hit for hit in active if hit.status.is_active}
        self._places = {id_: where for id_, where in self._places.items() if id_ in self._known}
        self._looked_at = self._asked_at = began

    def _look_for_newer(self, repository: str, branch: str) -> set[str]:
        began = time.monotonic()
        newest = max(self._known.values(), key=lambda hit: hit.started).started_at
        doing = f"looking for new workflows on {repository}/{branch}"
        found, _ = search(self._api, ACTIVE, started_after(newest - _OVERLAP_SECONDS), doing=doing)
        newer = {hit.id: hit for hit in found if hit.status.is_active}
        self._known |= newer
        self._asked_at = began
        return set(newer)

    def _goes_on(self, hit: WorkflowSummary) -> bool:
        path = api_path("workflow", hit.id, "status")
        if is_active(self._api.find(path, doing=f"reading the status of workflow {hit.id}")):
            return True
        del self._known[hit.id]
        return False

    def _on(self, repository: str, branch: str) -> list[WorkflowSummary]:
        ours, mention = correlation_of(repository, branch), InputPattern(repository, branch)
        found = [
            hit
            for hit in self._known.values()
            # A sub-workflow inherits the mark of the one above it, and may work elsewhere.
            if (hit.correlation_id == ours and hit.parent_id is None)
            or (mention.is_possible(hit) and self._branch_of(hit) == (repository, branch))
        ]
        return sorted(found, key=lambda hit: hit.age_order)

    def _branch_of(self, hit: WorkflowSummary) -> tuple[str, str] | None:
        if hit.id not in self._places:
            path = api_path("workflow", hit.id, includeTasks="false")
            workflow = self._api.find(path, doing=f"reading workflow {hit.id}")
            self._places[hit.id] = branch_of(workflow)
        return self._places[hit.id]


class InputPattern:
    """Whether an input, as far as it is shown, leaves it possible that it names a branch.

    Servers show an input as Java does, ``{branch=main, …}``, or as JSON.
    """

    def __init__(self, repository: str, branch: str) -> None:
        # The branch first: it tells more of them apart.
        named = {"branch": branch, "repository": repository}
        self._patterns = [
            re.compile(rf'{field}(?:=|":"){re.escape(value)}[",}}]')
            for field, value in named.items()
            if _PLAIN.fullmatch(value)
        ]

    def is_possible(self, hit: WorkflowSummary) -> bool:
        if not hit.has_whole_input:
            return True
        return all(pattern.search(hit.input) for pattern in self._patterns)


def innermost(hits: Iterable[WorkflowSummary]) -> list[WorkflowSummary]:
    """Without those that wait for a sub-workflow of theirs on the same branch: that one writes."""
    found = list(hits)
    above = {hit.parent_id for hit in found}
    return [hit for hit in found if hit.id not in above]
