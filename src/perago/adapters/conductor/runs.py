"""Workflows on Conductor as pipeline runs: starting them, looking at them, and ending them."""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.adapter import ConductorOrchestrator
from perago.adapters.conductor.answers import below
from perago.adapters.conductor.definitions import workflow_definition
from perago.adapters.conductor.fields import documents, optional, required, seconds
from perago.adapters.conductor.search import correlation_of, search, status_in
from perago.adapters.conductor.tasks import record_of
from perago.adapters.conductor.workflows import (
    input_again,
    run_of,
    start_mark_of,
    workflow_input,
)
from perago.errors import (
    BranchBusyError,
    DefinitionDiffersError,
    OrchestratorError,
    OrchestratorUnavailableError,
    RunError,
    RunNotFoundError,
    UnknownAttemptError,
)
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus, assert_active, assert_runnable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from perago.adapters.conductor.search import Hit
    from perago.model.run import RunPlan, RunRecord
    from perago.model.workspace import WorkspaceRef

PAUSES_AFTER_A_LOST_START = (0.0, 0.5, 1.0, 2.0)
"""Seconds before each look for a workflow that may or may not have been started."""

_UNFINISHED = (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.FAILED, RunStatus.TIMED_OUT)
_FEW = 20
_MANY = 200
_WHOLE_ID = 36


class ConductorRuns(ConductorOrchestrator):
    """A :class:`~perago.ports.runs.SharedRuns`. A run is a workflow; its id is Conductor's.

    What people and other programs started is shown too. ``runs``, ``find``, ``last_on`` and
    ``resumable`` go by Conductor's index, which may lag behind a moment.
    """

    # --- starting ---------------------------------------------------------------------------------

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
        definition = workflow_definition(self._api, plan.name, version)
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
            "input": input_again(workflow, workspace, mark=mark),
        }
        return self._started(order, workspace, mark)

    def _started(
        self, order: Mapping[str, object], workspace: WorkspaceRef | None, mark: str
    ) -> str:
        name = str(order["name"])
        self._refuse_busy(workspace)
        try:
            started = self._api.send(
                "POST", below("workflow"), order, doing=f"starting workflow {name!r}"
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
            if is_possible and start_mark_of(self._find_workflow(hit.id)) == mark:
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

    # --- looking ----------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunRecord:
        """Raises RunNotFoundError."""
        return run_of(self._workflow(run_id, with_tasks=True))

    def find(self, prefix: str) -> RunRecord:
        """The one run whose id starts with ``prefix``.

        Raises RunNotFoundError if there is none or, naming them, if there are several.
        """
        if len(prefix) >= _WHOLE_ID:
            return self.get(prefix)
        plain = prefix if prefix.replace("-", "").isalnum() else ""
        hits: list[Hit] = []
        if plain:
            hits, _ = search(
                self._api, f"workflowId='{plain}*'", size=_MANY, doing=f"looking for run {prefix!r}"
            )
        ids = [hit.id for hit in hits if hit.id.startswith(prefix)]
        if not ids:
            raise RunNotFoundError(
                f"no run's id starts with {prefix!r}", fix="`perago runs` lists the runs there are"
            )
        if len(ids) > 1:
            raise RunNotFoundError(
                f"{len(ids)} runs have an id that starts with {prefix!r}: {', '.join(ids[:5])}",
                fix="give more of the id",
            )
        return self.get(ids[0])

    def runs(self, limit: int = 50) -> list[RunRecord]:
        """The last ``limit`` workflows, newest first, whoever started them."""
        hits, _ = search(self._api, size=limit, doing="listing the workflows")
        return list(self._records(hits))

    def active_on(self, repository: str, branch: str) -> RunRecord | None:
        """The RUNNING or PAUSED run on this branch; the oldest, should there be several."""
        return next(self._records(self._branches.active_on(repository, branch)), None)

    def last_on(self, repository: str, branch: str) -> RunRecord | None:
        """The newest of the active runs on this branch and of those that we started there."""
        ours = self._correlated(correlation_of(repository, branch), _FEW)
        hits = [*self._branches.active_on(repository, branch), *ours]
        newest = sorted(hits, key=lambda hit: hit.age_order, reverse=True)
        here = (
            record
            for record in self._records(newest)
            if record.workspace
            and (record.workspace.repository, record.workspace.branch) == (repository, branch)
        )
        return next(here, None)

    def resumable(self, target: str | None) -> RunRecord | None:
        """The newest unfinished run whose plan has that target or name and isn't superseded."""
        hits, _ = search(
            self._api, status_in(*_UNFINISHED), size=_MANY, doing="looking for unfinished runs"
        )
        for record in self._records(hit for hit in hits if _may_be_unfinished(hit, target)):
            is_meant = target is None or target in (record.plan.target, record.plan.name)
            if is_meant and self._superseding(record) is None:
                return record
        return None

    def next_due(self, run_id: str) -> float | None:
        """When a scheduled attempt may be polled; None if none is scheduled."""
        waiting = (a for a in self.get(run_id).attempts if a.status is TaskStatus.SCHEDULED)
        return min((attempt.due_at for attempt in waiting), default=None)

    # --- what a person does to a run --------------------------------------------------------------

    def pause(self, run_id: str, reason: str) -> None:  # noqa: ARG002 - Conductor keeps none
        """Schedule nothing more of the run until it is resumed; what is scheduled goes on.

        Raises RunError if it has ended.
        """
        assert_active(self.get(run_id), "paused")
        self._api.send("PUT", below("workflow", run_id, "pause"), doing=f"pausing run {run_id}")

    def cancel(self, run_id: str, reason: str) -> None:
        """End the run TERMINATED; its unfinished attempts are CANCELED.

        Raises RunError if it has ended already, also by itself just now.
        """
        assert_active(self.get(run_id), "cancelled")
        self._terminate(run_id, reason)
        after = self.get(run_id)
        if after.status is not RunStatus.TERMINATED:
            assert_active(after, "cancelled")
            raise OrchestratorUnavailableError(
                f"run {run_id} was to be ended and is {after.status}", fix="cancel it again"
            )

    def resume(self, run_id: str) -> None:
        """Go on with a run that is paused, or once more try the step that ended it.

        One that is RUNNING goes on by itself. Raises BranchBusyError if another workflow is active
        on its branch, and RunError if it is COMPLETED or TERMINATED, or if another run has had
        something accepted on the branch since it began.
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
                fix="start a new run from where the branch is now: `perago recover`",
            )
        if run.status is RunStatus.PAUSED:
            self._api.send(
                "PUT", below("workflow", run_id, "resume"), doing=f"resuming run {run_id}"
            )
        elif run.status is not RunStatus.RUNNING:
            self._refuse_busy(run.workspace)
            self._api.send(
                "POST", below("workflow", run_id, "retry"), doing=f"resuming run {run_id}"
            )

    # --- what the workers elsewhere do ------------------------------------------------------------

    def last_polls(self, task_names: Sequence[str]) -> dict[str, tuple[str, float]]:
        """Who asked for each task last, and when; without those that nobody ever asked for."""
        what, found = "a poll", {}
        for name in task_names:
            path = below("tasks", "queue", "polldata", taskType=name)
            said = documents(self._api.read(path, doing=f"asking who polls for {name}"), what)
            polls = [
                (seconds(raw, "lastPollTime", what) or 0.0, required(raw, "workerId", str, what))
                for raw in said
            ]
            if polls:
                at, worker_id = max(polls)
                found[name] = worker_id, at
        return found

    def task_logs(self, task_id: str) -> list[tuple[float, str]]:
        """What an attempt's worker had to say, each line with its time."""
        found = self._api.read(
            below("tasks", task_id, "log"),
            doing=f"reading the log of task {task_id}",
            absent=UnknownAttemptError,
        )
        what = "a log entry"
        entries = [
            (seconds(raw, "createdTime", what) or 0.0, optional(raw, "log", str, what) or "")
            for raw in documents(found or [], what)
        ]
        return [(at, line) for at, text in sorted(entries) for line in text.splitlines()]

    def task_ended_at(self, task_id: str) -> float | None:
        """When that attempt ended; None while it hasn't. Raises UnknownAttemptError."""
        return record_of(self._task(task_id)).ended_at

    # --- the ways there ---------------------------------------------------------------------------

    def _workflow(self, run_id: str, *, with_tasks: bool = False) -> Any:
        found = self._find_workflow(run_id, with_tasks=with_tasks)
        if found is None:
            raise RunNotFoundError(
                f"there is no workflow {run_id!r}", fix="`perago runs` lists those there are"
            )
        return found

    def _find_workflow(self, workflow_id: str, *, with_tasks: bool = False) -> Any:
        path = below("workflow", workflow_id, includeTasks=str(with_tasks).lower())
        return self._api.find(path, doing=f"reading workflow {workflow_id}")

    def _records(self, hits: Iterable[Hit]) -> Iterator[RunRecord]:
        """What the index lists, from the workflows themselves; what is gone by now is left out."""
        for hit in hits:
            found = self._find_workflow(hit.id, with_tasks=True)
            if found is not None:
                yield run_of(found)

    def _correlated(self, correlation: str, size: int) -> list[Hit]:
        hits, _ = search(
            self._api,
            f"correlationId='{correlation}'",
            size=size,
            doing=f"looking for workflows of {correlation}",
        )
        return [hit for hit in hits if hit.correlation_id == correlation]

    def _superseding(self, run: RunRecord) -> str | None:
        """Another run that has had something accepted on the branch of this one since it began.

        To this run's next attempt that would look abandoned, and be reset away.
        """
        if run.workspace is None:
            return None
        place = correlation_of(run.workspace.repository, run.workspace.branch)
        since = [hit for hit in self._correlated(place, _MANY) if hit.updated_at >= run.created_at]
        for other in self._records(hit for hit in since if hit.id != run.id):
            for record in other.attempts:
                accepted = record.status is TaskStatus.COMPLETED and record.output_ref
                if accepted and (record.ended_at or 0.0) >= run.created_at:
                    return other.id
        return None

    def _terminate(self, workflow_id: str, reason: str) -> None:
        path = below("workflow", workflow_id, reason=reason)
        self._api.send("DELETE", path, doing=f"ending run {workflow_id}")


def _correlation(workspace: WorkspaceRef | None, mark: str) -> str:
    if workspace is None:
        return f"perago:{mark}"
    return correlation_of(workspace.repository, workspace.branch)


def _may_be_unfinished(hit: Hit, target: str | None) -> bool:
    """Whether it is worth a look: the input, as far as the index shows it, may have the target."""
    is_meant = target is None or target == hit.name or target in hit.input
    return hit.status in _UNFINISHED and (is_meant or not hit.has_whole_input)


def _busy(workspace: WorkspaceRef, holder: Hit) -> BranchBusyError:
    return BranchBusyError(
        f"branch {workspace.branch!r} of {workspace.repository!r} belongs to run {holder.id} "
        f"({holder.name}), which is {holder.status}",
        fix=f"wait for its end, or `perago cancel {holder.id}`: one active run writes a branch",
    )
