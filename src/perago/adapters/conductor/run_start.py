"""Starting workflows on Conductor: each once, and one at a time on a branch."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.active_workflows import correlation_of, search
from perago.adapters.conductor.definitions import fetch_workflow_definition
from perago.adapters.conductor.orchestrator import ConductorOrchestrator
from perago.adapters.conductor.responses import api_path, required
from perago.adapters.conductor.workflows import idempotency_key_of, restart_input, workflow_input
from perago.errors import (
    BranchBusyError,
    DefinitionDiffersError,
    OrchestratorError,
    OrchestratorUnavailableError,
    RunNotFoundError,
)
from perago.model.run import assert_runnable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.adapters.conductor.active_workflows import WorkflowSummary
    from perago.model.run import RunPlan
    from perago.model.workspace import WorkspaceRef


PAUSES_AFTER_A_LOST_START = (0.0, 0.5, 1.0, 2.0)
"""Seconds before each look for a workflow that may or may not have been started."""
_FEW = 20


class WorkflowStarts(ConductorOrchestrator):
    """The part of :class:`~perago.adapters.conductor.runs.ConductorRuns` that starts workflows."""

    def start(
        self,
        plan: RunPlan,
        workspace: WorkspaceRef | None,
        *,
        run_id: str | None = None,
        version: int | None = None,
    ) -> str:
        """Start the registered workflow of that name, of ``version`` or its latest; its id.

        ``run_id`` marks this start: another one with the same mark is the same run, which is how
        one whose answer got lost is repeated. Raises BranchBusyError, naming the first active
        workflow on the branch, DefinitionDiffersError if what is registered isn't the plan, and
        RunError for a plan that can't be run.
        """
        assert_runnable(plan, workspace)
        mark = run_id or str(uuid.uuid4())
        definition = fetch_workflow_definition(self._api, plan.name, version)
        if definition is None:
            raise DefinitionDiffersError(
                f"workflow {plan.name!r} isn't registered", fix="`perago register` it"
            )
        order = {
            "name": plan.name,
            "version": required(definition, "version", int, "a workflow definition"),
            "correlationId": _correlation(workspace, mark),
            "input": workflow_input(plan, workspace, definition, mark=mark),
        }
        if run_id and (known := self._started_with(plan.name, workspace, mark)):
            return known
        return self._started(order, workspace, mark)

    def start_again(self, run_id: str, workspace: WorkspaceRef | None) -> str:
        """Start a workflow as that one was: of its name, version and input, but at ``workspace``.

        Raises RunNotFoundError, BranchBusyError.
        """
        workflow = self._workflow(run_id)
        mark, what = str(uuid.uuid4()), "a workflow"
        order = {
            "name": required(workflow, "workflowName", str, what),
            "version": required(workflow, "workflowVersion", int, what),
            "correlationId": _correlation(workspace, mark),
            "input": restart_input(workflow, workspace, mark=mark),
        }
        return self._started(order, workspace, mark)

    def _started(
        self, order: Mapping[str, object], workspace: WorkspaceRef | None, mark: str
    ) -> str:
        name = str(order["name"])
        self._refuse_busy(workspace)
        try:
            started = self._api.send(
                "POST", api_path("workflow"), order, doing=f"starting workflow {name!r}"
            )
        except OrchestratorUnavailableError as lost:
            started = self._found_after_all(name, workspace, mark, lost)
        self._give_way(started, workspace)
        return started

    def _found_after_all(
        self, name: str, workspace: WorkspaceRef | None, mark: str, lost: OrchestratorError
    ) -> str:
        """The workflow of a start that wasn't answered; it is never sent again by itself."""
        for pause in PAUSES_AFTER_A_LOST_START:
            time.sleep(pause)
            with suppress(OrchestratorUnavailableError):
                if started := self._started_with(name, workspace, mark):
                    return started
        raise OrchestratorUnavailableError(
            f"{lost.message}; no telling whether it was started",
            fix="see in `perago runs` whether it was, and if not start it again",
        ) from lost

    def _started_with(self, name: str, workspace: WorkspaceRef | None, mark: str) -> str | None:
        for hit in self._correlated(_correlation(workspace, mark), _FEW):
            is_possible = hit.name == name and (mark in hit.input or not hit.has_whole_input)
            if is_possible and idempotency_key_of(self._find_workflow(hit.id)) == mark:
                return hit.id
        return None

    def _refuse_busy(self, workspace: WorkspaceRef | None) -> None:
        if workspace is None:
            return
        holders = self._branches.active_on(workspace.repository, workspace.branch)
        if holders:
            raise _busy(workspace, holders[0])

    def _give_way(self, started: str, workspace: WorkspaceRef | None) -> None:
        """Of two that were started on a branch at one moment, the later one ends itself."""
        if workspace is None:
            return
        holders = self._branches.active_on(workspace.repository, workspace.branch)
        mine = next((holder for holder in holders if holder.id == started), None)
        before = [one for one in holders if mine and one.age_order < mine.age_order]
        if before:
            self._terminate(started, f"workflow {before[0].id} was started on the branch before")
            raise _busy(workspace, before[0])

    def _workflow(self, run_id: str, *, with_tasks: bool = False) -> Any:
        found = self._find_workflow(run_id, with_tasks=with_tasks)
        if found is None:
            raise RunNotFoundError(
                f"there is no workflow {run_id!r}", fix="`perago runs` lists those there are"
            )
        return found

    def _find_workflow(self, workflow_id: str, *, with_tasks: bool = False) -> Any:
        path = api_path("workflow", workflow_id, includeTasks=str(with_tasks).lower())
        return self._api.find(path, doing=f"reading workflow {workflow_id}")

    def _correlated(self, correlation: str, size: int) -> list[WorkflowSummary]:
        hits, _ = search(
            self._api,
            f"correlationId='{correlation}'",
            size=size,
            doing=f"looking for workflows of {correlation}",
        )
        return [hit for hit in hits if hit.correlation_id == correlation]

    def _terminate(self, workflow_id: str, reason: str) -> None:
        path = api_path("workflow", workflow_id, reason=reason)
        self._api.send("DELETE", path, doing=f"ending run {workflow_id}")


def _correlation(workspace: WorkspaceRef | None, mark: str) -> str:
    if workspace is None:
        return f"perago:{mark}"
    return correlation_of(workspace.repository, workspace.branch)


def _busy(workspace: WorkspaceRef, holder: WorkflowSummary) -> BranchBusyError:
    return BranchBusyError(
        f"branch {workspace.branch!r} of {workspace.repository!r} belongs to run {holder.id} "
        f"({holder.name}), which is {holder.status}",
        fix=f"wait for its end, or `perago cancel {holder.id}`: one active run writes a branch",
    )
