"""Polls for work, hands it to an executor, keeps its lease alive, and notices when it is gone.

The supervisor runs no task code, so a busy or broken task can't starve the heartbeat. Whether an
attempt still counts is the orchestrator's word: once it says no, the executor is stopped.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from perago.errors import ExecutorLostError, OrchestratorUnavailableError, StoreError
from perago.flow.recover import collect, leftovers
from perago.flow.report import failed
from perago.model.attempt import Execution, TaskStatus
from perago.worker.messages import (
    Assignment,
    Finished,
    LeaseRenewed,
    Progressed,
    Ready,
    StepEnded,
    StepStarted,
)
from perago.worker.process import ExecutorProcess

if TYPE_CHECKING:
    from pathlib import Path

    from perago.model.attempt import Attempt, Delivery
    from perago.model.controls import PublishBudget
    from perago.model.outcome import TaskReport
    from perago.model.run import StepPlan
    from perago.ports.clock import Clock
    from perago.ports.orchestrator import Orchestrator
    from perago.ports.store import Store
    from perago.settings import Settings
    from perago.worker.messages import FromExecutor
    from perago.worker.watcher import Watcher

STATUS_INTERVAL_SECONDS = 0.5
"""How often an attempt's standing is looked up between heartbeats, to stop a cancelled one soon."""

GIVEN_UP = frozenset({TaskStatus.TIMED_OUT, TaskStatus.CANCELED})

PUBLISHING_STEPS = frozenset({"publish", "report"})
"""Steps that are better finished than broken off."""


@dataclass(slots=True)
class _Work:
    """What the executor is doing right now."""

    assignment: Assignment
    budget: PublishBudget
    heartbeat_at: float
    looked_at: float
    step: str = ""
    step_began_at: float = 0.0
    obituary: TaskReport | None = None

    @property
    def attempt(self) -> Attempt:
        return self.assignment.delivery.attempt


class Supervisor:
    """One executor slot over one orchestrator. :meth:`tick` is one round of its loop."""

    def __init__(
        self,
        settings: Settings,
        orchestrator: Orchestrator,
        store: Store,
        clock: Clock,
        watcher: Watcher,
        *,
        steps: dict[str, StepPlan],
        log_directory: Path,
        worker_id: str,
    ) -> None:
        self._settings = settings
        self._orchestrator = orchestrator
        self._store = store
        self._clock = clock
        self._watcher = watcher
        self._steps = steps
        self._log_directory = log_directory
        self._worker_id = worker_id
        self._executor: ExecutorProcess | None = None
        self._ready = False
        self._work: _Work | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None

    @property
    def publishing(self) -> bool:
        return self._work is not None and self._work.step in PUBLISHING_STEPS

    @property
    def grace_seconds(self) -> float:
        """How long what is being published may take to finish once everything shall stop."""
        return self._work.budget.worker_shutdown_grace_seconds if self._work else 0.0

    def start(self) -> None:
        """Clean up after the dead, then start an executor, so that it is warm when work comes."""
        self.collect_leftovers()
        self._start_executor()

    def tick(self, seconds: float) -> None:
        """Take work if idle, listen for up to ``seconds``, then see to leases and deaths.

        An orchestrator that doesn't answer is asked again the next time. Raises ExecutorLostError
        if an executor can't even be started.
        """
        executor = self._executor or self._start_executor()
        with suppress(OrchestratorUnavailableError):
            if self._ready and self._work is None:  # starting up must not eat a lease
                self._poll()
        wait([executor.connection], timeout=seconds)
        for message in executor.messages():
            self._hear(message)
        self._notice_death()
        with suppress(OrchestratorUnavailableError):
            self._keep_lease()
            self._report_death()

    def stop(self) -> None:
        """End the executor and clean up what it was doing. The attempt stays as it is."""
        self._end_executor()
        self._work = None
        self.collect_leftovers()

    def collect_leftovers(self) -> None:
        """Never raises for the store: what stays is found again, by the next start or `gc`."""
        for leftover in leftovers(self._settings.attempts):
            with suppress(StoreError):
                collect(self._store, leftover)

    def _start_executor(self) -> ExecutorProcess:
        self._ready = False
        self._executor = ExecutorProcess(self._settings)
        return self._executor

    def _end_executor(self) -> None:
        self._ready = False
        if self._executor is not None:
            self._executor.end()
            self._executor = None

    # --- taking work ------------------------------------------------------------------------------
    def _poll(self) -> None:
        asked_at = self._clock.monotonic()  # a lease can't have begun before it was asked for
        deliveries = self._orchestrator.poll(
            [step.task_name for step in self._steps.values()], worker_id=self._worker_id
        )
        for delivery in deliveries:
            self._assign(delivery, asked_at)

    def _assign(self, delivery: Delivery, now: float) -> None:
        attempt = delivery.attempt
        step = self._steps[attempt.reference_task_name]
        budget = step.controls.budget_within(delivery.response_seconds)
        name = f"{attempt.reference_task_name}-{attempt.retry_count}"
        assignment = Assignment(
            delivery,
            Execution.begin(attempt),
            step.module,
            leased_at=now,
            events_log=self._log_directory / "events.jsonl",
            output_log=self._log_directory / f"{name}.log",
        )
        self._work = _Work(assignment, budget, heartbeat_at=now, looked_at=now)
        self._watcher.attempt_started(attempt)
        self._tell_executor(assignment)

    # --- listening --------------------------------------------------------------------------------
    def _hear(self, message: FromExecutor) -> None:
        work = self._work
        if isinstance(message, Ready):
            self._ready = True
        if work is None:
            return
        match message:
            case StepStarted(step):
                work.step, work.step_began_at = step, self._clock.monotonic()
                self._watcher.step_started(work.attempt, step)
            case StepEnded(fields):
                self._watcher.step_ended(work.attempt, fields)
            case Progressed(step, transfer):
                self._watcher.progressed(work.attempt, step, transfer)
            case Finished(outcome):
                self._work = None
                report = outcome.report
                status = report.status if outcome.accepted else f"{report.status} (not accepted)"
                self._watcher.attempt_ended(work.attempt, status, report.reason)
                if not report.completed:  # a retry starts from a process nothing went wrong in
                    self._end_executor()
            case _:
                pass

    # --- the lease --------------------------------------------------------------------------------
    def _keep_lease(self) -> None:
        work, now = self._work, self._clock.monotonic()
        if work is None:
            return
        if now - work.heartbeat_at >= work.budget.heartbeat_interval_seconds:
            extended = self._orchestrator.heartbeat(work.attempt, worker_id=self._worker_id)
            work.heartbeat_at = work.looked_at = now
            if extended:
                self._tell_executor(LeaseRenewed(now))
            else:
                self._stop_if_given_up(work)
        elif now - work.looked_at >= STATUS_INTERVAL_SECONDS:
            self._stop_if_given_up(work)
            work.looked_at = now

    def _stop_if_given_up(self, work: _Work) -> None:
        """Stop an attempt the orchestrator has given up on; one that was reported just goes on."""
        status = self._orchestrator.reload(work.attempt).status
        if status not in GIVEN_UP:
            return
        self._watcher.attempt_ended(work.attempt, status, "stopped: no longer the current attempt")
        self.stop()

    def _tell_executor(self, message: Assignment | LeaseRenewed) -> None:
        if self._executor is not None:
            self._executor.send(message)

    # --- death ------------------------------------------------------------------------------------
    def _notice_death(self) -> None:
        if self._executor is None or (death := self._executor.death()) is None:
            return
        work, was_ready = self._work, self._ready
        self.stop()
        if not was_ready:
            raise ExecutorLostError(
                f"the process that runs tasks {death} before it was ready",
                fix="what it printed says why; `perago doctor` checks the installation",
            )
        if work is not None:
            work.obituary = failed(_lost(work, death, self._settings.store))
            self._work = work

    def _report_death(self) -> None:
        """Report an attempt whose executor died: at once, unless a request of its may still land.

        Until then its lease is kept, so that no retry meets a branch that is about to move.
        """
        work = self._work
        if work is None or work.obituary is None:
            return
        if work.step == "publish" and self._store.outlives_callers:
            settled_at = work.step_began_at + work.budget.lakefs_merge_timeout_seconds
            if self._clock.monotonic() < settled_at:
                return
        receipt = self._orchestrator.report(work.attempt, work.obituary)
        self._work = None
        # It may have died after its own report was accepted: then that one stands.
        reason = work.obituary.reason if receipt.accepted else None
        self._watcher.attempt_ended(work.attempt, receipt.status, reason)


def _lost(work: _Work, death: str, store: str) -> ExecutorLostError:
    during = f" during {work.step!r}" if work.step else ""
    on = "" if store == "embedded" else f" --on {store}"
    hint = ""
    if work.step == "body" and "SIGKILL" in death:
        hint = " (out of memory?)"
    elif work.step == "publish":
        hint = ": it may have published, and the retry sees to that"
    return ExecutorLostError(
        f"the process running {work.attempt.task_name} {death}{during}{hint}",
        fix=f"`perago runs {work.attempt.workflow_instance_id} --logs{on}` shows what it printed",
    )
