"""Starting workflows on Conductor: each once, and one at a time on a branch."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from perago.adapters.conductor.active_workflows import (
    correlation_of,
    find_workflow,
    search_correlated,
)
from perago.adapters.conductor.definitions import fetch_workflow_definition
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.responses import required
from perago.adapters.conductor.workflows import idempotency_key_of, restart_input, workflow_input
from perago.errors import (
    BranchBusyError,
    DefinitionDiffersError,
    OrchestratorError,
    OrchestratorUnavailableError,
)
from perago.model.run import assert_runnable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from perago.adapters.conductor.active_workflows import ActiveWorkflows, WorkflowSummary
    from perago.adapters.conductor.client import ConductorClient
    from perago.model.run import RunPlan
    from perago.model.workspace import WorkspaceRef


PAUSES_AFTER_A_LOST_START = (0.0, 0.5, 1.0, 2.0)
"""Seconds before each search for a workflow whose start was not answered."""
_FEW = 20


class WorkflowStarter:
    """Starts workflows for :class:`~perago.adapters.conductor.runs.ConductorRuns`."""

    def __init__(self, client: ConductorClient, active: ActiveWorkflows) -> None:
        self._client = client
        self._active = active

    def start(
        self,
        plan: RunPlan,
        workspace: WorkspaceRef | None,
        *,
        run_id: str | None = None,
        version: int | None = None,
    ) -> str:
        """Start the plan's registered workflow, of ``version`` or the latest; return its id.

        ``run_id`` is the idempotency key: a second start with the same key returns the first one's
        workflow, so a start without an answer can be repeated. Raises BranchBusyError, naming the
        oldest active workflow on the branch, DefinitionDiffersError if the registered definition
        isn't the plan's, and RunError for a plan that can't run.
        """
        assert_runnable(plan, workspace)
        key = run_id or str(uuid.uuid4())
        definition = fetch_workflow_definition(self._client, plan.name, version)
        if definition is None:
            raise DefinitionDiffersError(
                f"workflow {plan.name!r} isn't registered", fix="register it: `perago register`"
            )
        request = {
            "name": plan.name,
            "version": required(definition, "version", int, "a workflow definition"),
            "correlationId": _correlation(workspace, key),
            "input": workflow_input(plan, workspace, definition, key=key),
        }
        if run_id and (known := self._find_started(plan.name, workspace, key)):
            return known
        return self._start(request, workspace, key)

    def start_again(self, workflow: Mapping[str, Any], workspace: WorkspaceRef | None) -> str:
        """Start a workflow with the name, version and input of that one, but at ``workspace``."""
        key, what = str(uuid.uuid4()), "a workflow"
        request = {
            "name": required(workflow, "workflowName", str, what),
            "version": required(workflow, "workflowVersion", int, what),
            "correlationId": _correlation(workspace, key),
            "input": restart_input(workflow, workspace, key=key),
        }
        return self._start(request, workspace, key)

    def assert_branch_free(self, workspace: WorkspaceRef | None) -> None:
        """Raises BranchBusyError if a workflow is active on the workspace's branch."""
        if workspace is None:
            return
        active = self._active.on_branch(workspace.repository, workspace.branch)
        if active:
            raise _busy(workspace, active[0])

    def _start(
        self, request: Mapping[str, object], workspace: WorkspaceRef | None, key: str
    ) -> str:
        name = str(request["name"])
        self.assert_branch_free(workspace)
        try:
            started = self._client.send(
                "POST", api_path("workflow"), request, doing=f"starting workflow {name!r}"
            )
        except OrchestratorUnavailableError as lost:
            started = self._find_after_lost_answer(name, workspace, key, lost)
        self._yield_to_older(started, workspace)
        return started

    def _find_after_lost_answer(
        self, name: str, workspace: WorkspaceRef | None, key: str, lost: OrchestratorError
    ) -> str:
        """The workflow of a start without an answer; the start itself is never repeated."""
        for pause in PAUSES_AFTER_A_LOST_START:
            time.sleep(pause)
            with suppress(OrchestratorUnavailableError):
                if started := self._find_started(name, workspace, key):
                    return started
        raise OrchestratorUnavailableError(
            f"{lost.message}; it is unknown whether it was started",
            fix="look for it in `perago runs`; if it is missing, start it again",
        ) from lost

    def _find_started(self, name: str, workspace: WorkspaceRef | None, key: str) -> str | None:
        for summary in search_correlated(self._client, _correlation(workspace, key), _FEW):
            may_match = key in summary.input or not summary.has_whole_input
            if summary.name == name and may_match:
                workflow = find_workflow(self._client, summary.id)
                if idempotency_key_of(workflow) == key:
                    return summary.id
        return None

    def _yield_to_older(self, started: str, workspace: WorkspaceRef | None) -> None:
        """Of two workflows started on a branch at the same moment, end the later one."""
        if workspace is None:
            return
        active = self._active.on_branch(workspace.repository, workspace.branch)
        mine = next((one for one in active if one.id == started), None)
        older = [one for one in active if mine and one.age_order < mine.age_order]
        if older:
            reason = f"workflow {older[0].id} was started on the branch before"
            terminate(self._client, started, reason)
            raise _busy(workspace, older[0])


def terminate(client: ConductorClient, workflow_id: str, reason: str) -> None:
    """End a workflow."""
    path = api_path("workflow", workflow_id, reason=reason)
    client.send("DELETE", path, doing=f"ending run {workflow_id}")


def _correlation(workspace: WorkspaceRef | None, key: str) -> str:
    if workspace is None:
        return f"perago:{key}"
    return correlation_of(workspace.repository, workspace.branch)


def _busy(workspace: WorkspaceRef, holder: WorkflowSummary) -> BranchBusyError:
    return BranchBusyError(
        f"branch {workspace.branch!r} of {workspace.repository!r} belongs to run {holder.id} "
        f"({holder.name}), which is {holder.status}",
        fix=f"wait for its end, or `perago cancel {holder.id}`: a branch has one active run",
    )
