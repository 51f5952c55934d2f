"""Workflows on Conductor as pipeline runs: looking at them, and what a person does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perago.adapters.conductor.active_workflows import correlation_of, search, status_in
from perago.adapters.conductor.responses import api_path, documents, optional, required, seconds
from perago.adapters.conductor.run_start import WorkflowStarts
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
    from perago.model.run import RunRecord

_UNFINISHED = (RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.FAILED, RunStatus.TIMED_OUT)
_FEW = 20
_MANY = 200
_WHOLE_ID = 36


class ConductorRuns(WorkflowStarts):
    """A :class:`~perago.ports.orchestrator.SharedRuns`. A run is a workflow; its id is Conductor's.

    What people and other programs started is shown too. ``runs``, ``find``, ``last_on`` and
    ``resumable`` go by Conductor's index, which may lag behind a moment.
    """

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
        hits: list[WorkflowSummary] = []
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
        self._api.send("PUT", api_path("workflow", run_id, "pause"), doing=f"pausing run {run_id}")

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
                "PUT", api_path("workflow", run_id, "resume"), doing=f"resuming run {run_id}"
            )
        elif run.status is not RunStatus.RUNNING:
            self._refuse_busy(run.workspace)
            self._api.send(
                "POST", api_path("workflow", run_id, "retry"), doing=f"resuming run {run_id}"
            )

    # --- what the workers elsewhere do ------------------------------------------------------------

    def look_again(self, run_id: str) -> None:
        """Have Conductor evaluate the workflow now; by itself it may take a minute or two."""
        path = api_path("workflow", "decide", run_id)
        self._api.send("PUT", path, doing=f"having run {run_id} looked at")

    def last_polls(self, task_names: Sequence[str]) -> dict[str, tuple[str, float]]:
        """Who asked for each task last, and when; without those that nobody ever asked for."""
        what, found = "a poll", {}
        for name in task_names:
            path = api_path("tasks", "queue", "polldata", taskType=name)
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
        """When that attempt ended; None while it hasn't. Raises UnknownAttemptError."""
        return record_of(self._task(task_id)).ended_at

    # --- from the index to the workflows ----------------------------------------------------------

    def _records(self, hits: Iterable[WorkflowSummary]) -> Iterator[RunRecord]:
        """What the index lists, from the workflows themselves; what is gone by now is left out."""
        for hit in hits:
            found = self._find_workflow(hit.id, with_tasks=True)
            if found is not None:
                yield run_of(found)

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


def _may_be_unfinished(hit: WorkflowSummary, target: str | None) -> bool:
    """Whether it is worth a look: the input, as far as the index shows it, may have the target."""
    is_meant = target is None or target == hit.name or target in hit.input
    return hit.status in _UNFINISHED and (is_meant or not hit.has_whole_input)
