"""Search in Conductor's workflow index, and which active workflows are on a branch.

The index lists all workflows, also those that other programs started.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.responses import document, documents, optional, required
from perago.adapters.conductor.workflows import branch_of, is_active
from perago.errors import OrchestratorError
from perago.model.run import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from perago.adapters.conductor.client import ConductorClient

PAGE = 1000
"""The most workflows that one search returns; Conductor allows 5,000."""
_RELIST_SECONDS = 10.0
"""The list of active workflows is read anew after this time; until then, new ones are added."""
_OVERLAP_SECONDS = 1.0  # the index may learn of a workflow a little after a newer one
_SUMMARY = "a workflow summary"
_PLAIN = re.compile(r"[\w.-]+", re.ASCII)


# --- searching ------------------------------------------------------------------------------------


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
        """Sorts older workflows first, in the same order for every client."""
        return self.started, self.id


def status_in(*statuses: RunStatus) -> str:
    """A search condition."""
    return f"status IN ({','.join(statuses)})"


ACTIVE = status_in(*(status for status in RunStatus if status.is_active))


def search(
    client: ConductorClient, *conditions: str, size: int = PAGE, doing: str
) -> tuple[list[WorkflowSummary], int]:
    """The newest ``size`` workflows that meet all conditions, newest first; how many there are."""
    path = api_path(
        "workflow",
        "search",
        start=0,
        size=size,
        sort="startTime:DESC",
        query=" AND ".join(conditions),
    )
    page = document(client.read(path, doing=doing), "search results")
    found = [_summary_of(raw) for raw in documents(page.get("results"), "workflow summaries")]
    total = required(page, "totalHits", int, "search results")
    return sorted(found, key=lambda summary: summary.age_order, reverse=True), total


def search_correlated(
    client: ConductorClient, correlation: str, size: int
) -> list[WorkflowSummary]:
    """The newest ``size`` workflows with this correlation id, newest first."""
    found, _ = search(
        client,
        f"correlationId='{correlation}'",
        size=size,
        doing=f"looking for workflows of {correlation}",
    )
    return [summary for summary in found if summary.correlation_id == correlation]


def correlation_of(repository: str, branch: str) -> str:
    """The correlation id of the workflows that we start on a branch."""
    # Quoted: a search condition can't contain a quote or a comma.
    return f"perago:{quote(repository, safe='')}/{quote(branch, safe='')}"


def find_workflow(client: ConductorClient, workflow_id: str, *, with_tasks: bool = False) -> Any:
    """A workflow's JSON; None if there is no such workflow."""
    path = api_path("workflow", workflow_id, includeTasks=str(with_tasks).lower())
    return client.find(path, doing=f"reading workflow {workflow_id}")


def _summary_of(raw: Mapping[str, Any]) -> WorkflowSummary:
    started = optional(raw, "startTime", str, _SUMMARY) or ""
    status = required(raw, "status", str, _SUMMARY)
    try:
        known = RunStatus(status)
    except ValueError:
        raise OrchestratorError(f"Conductor sent {_SUMMARY} whose status is {status!r}") from None
    return WorkflowSummary(
        id=required(raw, "workflowId", str, _SUMMARY),
        name=required(raw, "workflowType", str, _SUMMARY),
        status=known,
        started=started,
        updated=optional(raw, "updateTime", str, _SUMMARY) or started,
        correlation_id=optional(raw, "correlationId", str, _SUMMARY),
        parent_id=optional(raw, "parentWorkflowId", str, _SUMMARY) or None,
        input=optional(raw, "input", str, _SUMMARY) or "",
    )


def _seconds(moment: str) -> float:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        raise OrchestratorError(f"Conductor sent {_SUMMARY} with the time {moment!r}") from None


# --- on a branch ----------------------------------------------------------------------------------


class ActiveWorkflows:
    """The active workflows by branch, cached for a few seconds; for any number of threads.

    The index shows a workflow's input as text. If the text leaves its branch open, the workflow
    itself is read, once: an input never changes.
    """

    def __init__(self, client: ConductorClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[str, WorkflowSummary] = {}
        self._branches: dict[str, tuple[str, str] | None] = {}
        self._listed_at = self._updated_at = -_RELIST_SECONDS

    def on_branch(self, repository: str, branch: str) -> list[WorkflowSummary]:
        """The RUNNING and PAUSED workflows whose input names this branch, oldest first.

        If more than a thousand are active, the oldest of other programs may be missing.
        """
        with self._lock:
            self._list(repository, branch)
            return self._on(repository, branch)

    def writers(
        self, repository: str, branch: str, *, asking: str | None, seconds_old: float
    ) -> list[WorkflowSummary]:
        """As :meth:`on_branch`, but usually with one small request, or none.

        A workflow that is retried after its end appears a few seconds later. The workflow
        ``asking`` is known to be active and on this branch.
        """
        with self._lock:
            now = time.monotonic()
            if now - self._listed_at >= _RELIST_SECONDS or not self._known:
                self._list(repository, branch)
                return self._on(repository, branch)
            fresh = {asking} if asking in self._known else set()
            if not fresh or now - self._updated_at >= seconds_old:
                fresh |= self._add_newer(repository, branch)
            if asking in self._known:
                self._branches.setdefault(asking, (repository, branch))
            found = self._on(repository, branch)
            return [one for one in found if one.id in fresh or self._is_still_active(one)]

    def _list(self, repository: str, branch: str) -> None:
        doing = f"looking for workflows on {repository}/{branch}"
        began = time.monotonic()
        active, total = search(self._client, ACTIVE, doing=doing)
        if total > PAGE:
            ours = f"correlationId='{correlation_of(repository, branch)}'"
            active += search(self._client, ours, ACTIVE, doing=doing)[0]
        self._known = {one.id: one for one in active if one.status.is_active}
        self._branches = {
            workflow_id: where
            for workflow_id, where in self._branches.items()
            if workflow_id in self._known
        }
        self._listed_at = self._updated_at = began

    def _add_newer(self, repository: str, branch: str) -> set[str]:
        began = time.monotonic()
        newest = max(self._known.values(), key=lambda one: one.started).started_at
        started_after = f"startTime>{int((newest - _OVERLAP_SECONDS) * 1000)}"
        doing = f"looking for new workflows on {repository}/{branch}"
        found, _ = search(self._client, ACTIVE, started_after, doing=doing)
        newer = {one.id: one for one in found if one.status.is_active}
        self._known |= newer
        self._updated_at = began
        return set(newer)

    def _is_still_active(self, summary: WorkflowSummary) -> bool:
        path = api_path("workflow", summary.id, "status")
        doing = f"reading the status of workflow {summary.id}"
        if is_active(self._client.find(path, doing=doing)):
            return True
        del self._known[summary.id]
        return False

    def _on(self, repository: str, branch: str) -> list[WorkflowSummary]:
        ours, pattern = correlation_of(repository, branch), InputPattern(repository, branch)
        found = [
            one
            for one in self._known.values()
            # A sub-workflow inherits its parent's correlation id, and may use another branch.
            if (one.correlation_id == ours and one.parent_id is None)
            or (pattern.may_match(one) and self._branch_of(one) == (repository, branch))
        ]
        return sorted(found, key=lambda one: one.age_order)

    def _branch_of(self, summary: WorkflowSummary) -> tuple[str, str] | None:
        if summary.id not in self._branches:
            self._branches[summary.id] = branch_of(find_workflow(self._client, summary.id))
        return self._branches[summary.id]


class InputPattern:
    """Whether an input, as far as the index shows it, may name a branch.

    Servers show an input in Java's form, ``{branch=main, …}``, or as JSON.
    """

    def __init__(self, repository: str, branch: str) -> None:
        # The branch first: it rules out more workflows.
        named = {"branch": branch, "repository": repository}
        self._patterns = [
            re.compile(rf'{field}(?:=|":"){re.escape(value)}[",}}]')
            for field, value in named.items()
            if _PLAIN.fullmatch(value)
        ]

    def may_match(self, summary: WorkflowSummary) -> bool:
        if not summary.has_whole_input:
            return True
        return all(pattern.search(summary.input) for pattern in self._patterns)


def innermost(summaries: Iterable[WorkflowSummary]) -> list[WorkflowSummary]:
    """Without the parents of others among them: only the sub-workflow writes the branch."""
    found = list(summaries)
    parents = {summary.parent_id for summary in found}
    return [summary for summary in found if summary.id not in parents]
