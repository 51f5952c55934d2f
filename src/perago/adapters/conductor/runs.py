"""Pipeline runs on Conductor: starting, reading, pausing, cancelling and resuming them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.active_workflows import (
    correlation_of,
    find_workflow,
    search,
    search_correlated,
    status_in,
)
from perago.adapters.conductor.http import api_path
from perago.adapters.conductor.orchestrator import ConductorOrchestrator
from perago.adapters.conductor.responses import documents, optional, required, seconds
from perago.adapters.conductor.run_start import WorkflowStarter, terminate
from perago.adapters.conductor.tasks import record_of
from perago.adapters.conductor.workflows import run_of
from perago.errors import (
    OrchestratorUnavailableError,
    RunError,
    RunNotFoundError,
    UnknownAttemptError,
)
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus, assert_active

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from perago.adapters.conductor.active_workflows import WorkflowSummary
    from perago.adapters.conductor.client import ConductorConfig
    from perago.model.run import RunPlan, RunRecord
    from perago.model.workspace import WorkspaceRef

_UNFINISHED = (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.FAILED, RunStatus.TIMED_OUT)
_FEW = 20
_MANY = 200
_WHOLE_ID = 36


class ConductorRuns(ConductorOrchestrator):
    """A :class:`~perago.ports.orchestrator.SharedRuns`. A run is a workflow, with the same id.

    Workflows that people and other programs started are shown, too. ``runs``, ``find``, ``last_on``
    and ``resumable`` read Conductor's index, which may lag behind a moment.
    """

    def __init__(self, config: ConductorConfig) -> None:
        super().__init__(config)
        self._starter = WorkflowStarter(self._client, self._active)

    # --- starting ---------------------------------------------------------------------------------

    def start(
        self,
        plan: RunPlan,
        workspace: WorkspaceRef | None,
        *,
        run_id: str | None = None,
        version: int | None = None,
    ) -> str:
        """Start the plan's registered workflow; see :meth:`WorkflowStarter.start`."""
        return self._starter.start(plan, workspace, run_id=run_id, version=version)

    def start_again(self, run_id: str, workspace: WorkspaceRef | None) -> str:
        """Start a workflow with the name, version and input of that run, but at ``workspace``.

        Raises RunNotFoundError, BranchBusyError.
        """
        return self._starter.start_again(self._workflow(run_id), workspace)

    # --- reading ----------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunRecord:
        """Raises RunNotFoundError."""
        return run_of(self._workflow(run_id, with_tasks=True))

    def find(self, prefix: str) -> RunRecord:
        """The one run whose id starts with ``prefix``.

        Raises RunNotFoundError if there is none or, naming them, if there are several.
        """
        if len(prefix) >= _WHOLE_ID:
            return self.get(prefix)
        found: list[WorkflowSummary] = []
        if prefix.replace("-", "").isalnum():
            condition = f"workflowId='{prefix}*'"
            found, _ = search(
                self._client, condition, size=_MANY, doing=f"looking for run {prefix!r}"
            )
        ids = [summary.id for summary in found if summary.id.startswith(prefix)]
        if not ids:
            raise RunNotFoundError(
                f"no run's id starts with {prefix!r}", fix="`perago runs` lists the runs"
            )
        if len(ids) > 1:
            raise RunNotFoundError(
                f"{len(ids)} runs have an id that starts with {prefix!r}: {', '.join(ids[:5])}",
                fix="give more of the id",
            )
        return self.get(ids[0])

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """The last ``limit`` workflows, newest first, of all programs."""
        found, _ = search(self._client, size=limit, doing="listing the workflows")
        return list(self._records(found))

    def active_on(self, repository: str, branch: str) -> RunRecord | None:
        """The RUNNING or PAUSED run on this branch; of several, the oldest."""
        return next(self._records(self._active.on_branch(repository, branch)), None)

    def last_on(self, repository: str, branch: str) -> RunRecord | None:
        """The newest of the active runs on this branch and of those that we started there."""
        ours = search_correlated(self._client, correlation_of(repository, branch), _FEW)
        found = [*self._active.on_branch(repository, branch), *ours]
        newest = sorted(found, key=lambda summary: summary.age_order, reverse=True)
        here = (
            record
            for record in self._records(newest)
            if record.workspace
            and (record.workspace.repository, record.workspace.branch) == (repository, branch)
        )
        return next(here, None)

    def resumable(self, target: str | None) -> RunRecord | None:
        """The newest unfinished run whose plan has that target or name and isn't superseded."""
        found, _ = search(
            self._client, status_in(*_UNFINISHED), size=_MANY, doing="looking for unfinished runs"
        )
        for record in self._records(one for one in found if _may_be_resumable(one, target)):
            is_meant = target is None or target in (record.plan.target, record.plan.name)
            if is_meant and self._superseding(record) is None:
                return record
        return None

    def next_due(self, run_id: str) -> float | None:
        """When a scheduled attempt may be polled; None if none is scheduled."""
        waiting = (a for a in self.get(run_id).attempts if a.status is TaskStatus.SCHEDULED)
        return min((attempt.due_at for attempt in waiting), default=None)

    # --- pausing, cancelling, resuming ------------------------------------------------------------

    def pause(self, run_id: str, reason: str) -> None:  # noqa: ARG002 - Conductor stores none
        """Schedule no more steps until the run is resumed; scheduled ones still run.

        Raises RunError if it has ended.
        """
        assert_active(self.get(run_id), "paused")
        path = api_path("workflow", run_id, "pause")
        self._client.send("PUT", path, doing=f"pausing run {run_id}")

    def cancel(self, run_id: str, reason: str) -> None:
        """End the run TERMINATED; its unfinished attempts are CANCELED.

        Raises RunError if it has ended, also if that happens during this call.
        """
        assert_active(self.get(run_id), "cancelled")
        terminate(self._client, run_id, reason)
        after = self.get(run_id)
        if after.status is not RunStatus.TERMINATED:
            assert_active(after, "cancelled")
            raise OrchestratorUnavailableError(
                f"run {run_id} should have ended, but is {after.status}",
                fix=f"`perago cancel {run_id}` again",
            )

    def resume(self, run_id: str) -> None:
        """Resume a paused run, or retry the step that ended a failed or timed-out one.

        Does nothing for a RUNNING run. Raises BranchBusyError if another workflow is active on its
        branch, and RunError if it is COMPLETED or TERMINATED, or if another run has published on
        the branch since it began.
        """
        run = self.get(run_id)
        if run.status in (RunStatus.COMPLETED, RunStatus.TERMINATED):
            raise RunError(
                f"run {run_id} is {run.status}: there is nothing to resume",
                fix="start a new run from the branch's present head",
            )
        other = self._superseding(run)
        if other is not None:
            raise RunError(
                f"run {run_id} can't go on: run {other} has published on its branch since",
                fix="start a new run from the branch's present head: `perago recover`",
            )
        doing = f"resuming run {run_id}"
        if run.status is RunStatus.PAUSED:
            self._client.send("PUT", api_path("workflow", run_id, "resume"), doing=doing)
        elif run.status is not RunStatus.RUNNING:
            self._starter.assert_branch_free(run.workspace)
            self._client.send("POST", api_path("workflow", run_id, "retry"), doing=doing)

    # --- workers on other machines ----------------------------------------------------------------

    def look_again(self, run_id: str) -> None:
        """Make Conductor evaluate the workflow now; otherwise it may take a minute or two."""
        path = api_path("workflow", "decide", run_id)
        self._client.send("PUT", path, doing=f"evaluating run {run_id}")

    def last_polls(self, task_names: Sequence[str]) -> dict[str, tuple[str, float]]:
        """The last worker that polled for each task, and when; without tasks never polled for."""
        what, found = "a poll", {}
        for name in task_names:
            path = api_path("tasks", "queue", "polldata", taskType=name)
            raw_polls = documents(
                self._client.read(path, doing=f"reading the pollers of {name}"), what
            )
            polls = [
                (seconds(raw, "lastPollTime", what) or 0.0, required(raw, "workerId", str, what))
                for raw in raw_polls
            ]
            if polls:
                at, worker_id = max(polls)
                found[name] = worker_id, at
        return found

    def task_logs(self, task_id: str) -> list[tuple[float, str]]:
        """The log lines of an attempt, each with its time."""
        found = self._client.read(
            api_path("tasks", task_id, "log"),
            doing=f"reading the log of task {task_id}",
            not_found=UnknownAttemptError,
        )
        what = "a log entry"
        entries = [
            (seconds(raw, "createdTime", what) or 0.0, optional(raw, "log", str, what) or "")
            for raw in documents(found or [], what)
        ]
        return [(at, line) for at, text in sorted(entries) for line in text.splitlines()]

    def task_ended_at(self, task_id: str) -> float | None:
        """When that attempt ended; None while it runs. Raises UnknownAttemptError."""
        return record_of(self._task(task_id)).ended_at

    # --- from the index to the workflows ----------------------------------------------------------

    def _workflow(self, run_id: str, *, with_tasks: bool = False) -> Any:
        found = find_workflow(self._client, run_id, with_tasks=with_tasks)
        if found is None:
            raise RunNotFoundError(
                f"there is no workflow {run_id!r}", fix="`perago runs` lists the runs"
            )
        return found

    def _records(self, summaries: Iterable[WorkflowSummary]) -> Iterator[RunRecord]:
        """The workflows that the index lists; without those deleted by now."""
        for summary in summaries:
            found = find_workflow(self._client, summary.id, with_tasks=True)
            if found is not None:
                yield run_of(found)

    def _superseding(self, run: RunRecord) -> str | None:
        """Another run that has had a step accepted on this run's branch since it began.

        The next attempt of this run would take that commit for an abandoned one and replace it.
        """
        if run.workspace is None:
            return None
        correlation = correlation_of(run.workspace.repository, run.workspace.branch)
        recent = (
            summary
            for summary in search_correlated(self._client, correlation, _MANY)
            if summary.updated_at >= run.created_at and summary.id != run.id
        )
        for other in self._records(recent):
            for record in other.attempts:
                accepted = record.status is TaskStatus.COMPLETED and record.output_ref
                if accepted and (record.ended_at or 0.0) >= run.created_at:
                    return other.id
        return None


def _may_be_resumable(summary: WorkflowSummary, target: str | None) -> bool:
    """Whether to read it: unfinished, and the input may contain the target, as far as shown."""
    is_meant = target is None or target == summary.name or target in summary.input
    return summary.status in _UNFINISHED and (is_meant or not summary.has_whole_input)
