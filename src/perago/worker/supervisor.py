"""The supervisor: gives attempts to executors, has their leases kept, and handles dead executors.

It has one link to the orchestrator and some slots with an executor each. It neither loads nor runs
task code. The orchestrator decides whether an attempt is still the current one; if not, the
supervisor stops its executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import ExecutorLostError, RuntimeConfigError
from perago.flow.report import failed
from perago.model.attempt import AttemptStep, Execution, name_part
from perago.worker.attempt_log import last_printed
from perago.worker.events import (
    AttemptEnded,
    Ending,
    ExecutorLost,
    HeartbeatAccepted,
    OrchestratorReachable,
    OrchestratorUnreachable,
)
from perago.worker.messages import Assignment, ConnectionWaiter, HeartbeatsStopped, LeaseRenewed
from perago.worker.orchestrator_link import (
    DeathReported,
    Delivered,
    GivenBack,
    LeaseLost,
    PollingStopped,
    Prefetch,
    QueueEmpty,
)
from perago.worker.slot import Ended, Reporting, RunningAttempt

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perago.model.attempt import Attempt, Delivery, TaskStatus
    from perago.model.controls import PublishBudget, TaskControls
    from perago.model.outcome import TaskReport
    from perago.ports.environment import Clock
    from perago.worker.events import Observer
    from perago.worker.orchestrator_link import LinkEvent, OrchestratorLink
    from perago.worker.slot import Slot

_CHECK_ALL_SECONDS = 1.0
_MOST_WAITING_SECONDS = 3.0
_SHORT_SECONDS = 0.5
"""An attempt that ends within this time never has its lease renewed."""


@dataclass(frozen=True, slots=True)
class TaskTarget:
    """The module of an attempt's task, and the task's controls."""

    module: str
    controls: TaskControls


FindTask = Callable[["Attempt"], TaskTarget]
"""Raises RuntimeConfigError for a task that this worker doesn't serve."""


@dataclass(frozen=True, slots=True)
class WorkerPaths:
    """Where attempts leave files on this machine.

    ``logs_of`` is the log directory of an attempt; ``clean_up`` removes what dead executors left.
    ``requests_outlive_us``: whether a request may take effect after its sender died. ``on`` is the
    command-line option that finds the run, for error messages.
    """

    logs_of: Callable[[Attempt], Path]
    clean_up: Callable[[], None]
    requests_outlive_us: bool
    on: str


@dataclass(slots=True)
class _PendingDeathReport:
    """The report for an attempt whose executor died. It is sent at ``due_at``."""

    running: RunningAttempt
    report: TaskReport
    due_at: float
    is_sent: bool = False


class Supervisor:
    """Call :meth:`start`, then :meth:`tick` again and again, then :meth:`stop`."""

    def __init__(
        self,
        link: OrchestratorLink,
        slots: Sequence[Slot],
        find_task: FindTask,
        *,
        paths: WorkerPaths,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._link = link
        self._slots = slots
        self._find_task = find_task
        self._paths = paths
        self._clock = clock
        self._observer = observer
        self._waiter = ConnectionWaiter()
        self._prefetch = Prefetch(len(slots))
        self._waiting: list[Delivered] = []
        self._kept_leases: set[str] = set()
        self._death_reports: dict[str, _PendingDeathReport] = {}
        self._being_given_back: set[str] = set()
        self._takes_work = True
        self._is_polling = True
        self._checked_all_at = clock.monotonic()

    @property
    def running(self) -> list[RunningAttempt]:
        """The attempts that executors have now, with their current steps."""
        return [running for slot in self._slots if (running := slot.running) is not None]

    @property
    def is_busy(self) -> bool:
        """Whether anything is unfinished: attempts, reports for dead executors, give-backs."""
        return bool(
            any(slot.is_busy for slot in self._slots)
            or self._death_reports
            or self._waiting
            or self._being_given_back
        )

    @property
    def is_publishing(self) -> bool:
        return any(running.is_publishing for running in self.running)

    @property
    def grace_seconds(self) -> float:
        """How long the running attempts may take to finish when the worker stops."""
        graces = [running.budget.worker_shutdown_grace_seconds for running in self.running]
        return float(max(graces, default=0))

    def start(self) -> None:
        """Remove what dead executors left, then start ours, so that they are warm for work."""
        self._paths.clean_up()
        self._ensure_executors()

    def tick(self, seconds: float) -> None:
        """One round: request and assign work, wait up to ``seconds`` for messages, handle them.

        Raises ExecutorLostError if an executor dies before it is ready, and the error that an
        executor sends if it can't start.
        """
        self._ensure_executors()
        self._assign_waiting()
        self._request_work()
        self._keep_leases()
        for slot in self._wait(seconds):
            self._receive(slot)
            self._handle_death(slot)
        self._report_deaths()
        self._handle_link_events()
        self._assign_waiting()

    def stop_taking_work(self, seconds: float) -> None:
        """Stop polling, and wait so long until the last poll is answered.

        What the orchestrator delivers from now on is given back.
        """
        self._takes_work = False
        self._give_back_waiting(self._waiting)
        self._link.stop_polling()
        self._wait_for_link(seconds, lambda: self._is_polling)

    def stop(self) -> None:
        """End the executors and remove what they leave. Their attempts' leases run out."""
        self._end_executors()
        self._paths.clean_up()

    def leave(self) -> None:
        """End the executors, and give back the attempts that have not begun to publish.

        One that has is left to its lease: its retry finds out what became of the publication.
        """
        for running in self._end_executors():
            ending = Ending.LEFT_TO_LEASE if running.is_publishing else Ending.GIVEN_BACK
            self._observer.observe(AttemptEnded(running.attempt, ending))
            self._release_lease(running.delivery.id)
            if ending is Ending.GIVEN_BACK:
                self._give_back(running.delivery)
        self._give_back_waiting(self._waiting)
        self._paths.clean_up()

    def settle(self, seconds: float) -> None:
        """Wait so long for the answers about what was given back, or may have to be."""
        self._wait_for_link(seconds, lambda: self._is_polling or bool(self._being_given_back))

    # --- executors --------------------------------------------------------------------------------
    def _ensure_executors(self) -> None:
        for slot in self._slots:
            slot.ensure_started()

    def _end_executors(self) -> list[RunningAttempt]:
        """End all executors at the same time; return the attempts that they did not finish."""
        for slot in self._slots:
            slot.ask_to_end()
        return [running for slot in self._slots if (running := slot.end()) is not None]

    def _wait(self, seconds: float) -> list[Slot]:
        """Wait for messages; return the slots to check.

        Now and then that is all of them: a dead executor's child may keep its socket open.
        """
        connections = [connection for slot in self._slots for connection in slot.connections]
        ready = self._waiter.wait([*connections, *self._link.connections], seconds)
        now = self._clock.monotonic()
        if ready and now - self._checked_all_at <= _CHECK_ALL_SECONDS:
            return [slot for slot in self._slots if slot.has_message_in(ready)]
        self._checked_all_at = now
        return list(self._slots)

    def _receive(self, slot: Slot) -> None:
        for event in slot.receive():
            match event:
                case Ended(running):
                    self._prefetch.took(self._clock.monotonic() - running.began_at)
                    self._release_lease(running.delivery.id)
                case Reporting(delivery_id, waits):
                    self._release_lease(delivery_id, confirm=waits)

    def _handle_death(self, slot: Slot) -> None:
        if (death := slot.death()) is None:
            return
        was_ready = slot.is_ready
        self._receive(slot)  # its last messages
        running = slot.end()
        self._paths.clean_up()
        self._observer.observe(ExecutorLost(running.attempt if running else None, death))
        if not was_ready:
            slot.pause()
            raise died_before_ready(death)
        if running is None:
            return
        report = failed(executor_lost(running, death, self._paths.on))
        report = replace(report, logs=last_printed(running.assignment.output_log))
        settle_seconds = running.settle_seconds if self._paths.requests_outlive_us else 0.0
        due_at = self._clock.monotonic() + settle_seconds
        self._death_reports[running.delivery.id] = _PendingDeathReport(running, report, due_at)

    def _report_deaths(self) -> None:
        """Report dead executors' attempts once their last requests can no longer take effect.

        Until then the lease is kept, so that no retry starts while the branch may still move.
        """
        for pending in self._death_reports.values():
            if not pending.is_sent and self._clock.monotonic() >= pending.due_at:
                pending.is_sent = True
                self._link.report_death(pending.running.delivery, pending.report)

    # --- work -------------------------------------------------------------------------------------
    def _request_work(self) -> None:
        if not self._takes_work:
            return
        free = sum(slot.is_free for slot in self._slots)
        slots, ahead = self._prefetch.due(free=free, waiting=len(self._waiting))
        if slots or ahead:
            self._link.add_credit(slots, ahead)

    def _assign_waiting(self) -> None:
        for slot in self._slots:
            if self._waiting and slot.is_free:
                slot.assign(self._prepare(self._waiting.pop(0)))
        self._give_back_late()

    def _prepare(self, delivered: Delivered) -> RunningAttempt:
        delivery, attempt = delivered.delivery, delivered.delivery.attempt
        budget, logs = self._budget_of(delivery), self._paths.logs_of(attempt)
        name = f"{name_part(attempt.reference_task_name)}-{attempt.retry_count}"
        assignment = Assignment(
            delivery,
            Execution.begin(attempt),
            self._find_task(attempt).module,
            leased_at=delivered.polled_at,
            heartbeat_seconds=budget.heartbeat_interval_seconds,
            events_log=logs / "events.jsonl",
            output_log=logs / f"{name}.log",
        )
        return RunningAttempt(assignment, budget, began_at=self._clock.monotonic())

    def _budget_of(self, delivery: Delivery) -> PublishBudget:
        controls = self._find_task(delivery.attempt).controls
        return controls.budget_within(delivery.response_seconds)

    def _give_back_late(self) -> None:
        """Give back what no executor got around to: another worker may be free."""
        oldest = self._clock.monotonic() - _MOST_WAITING_SECONDS
        late = [delivered for delivered in self._waiting if delivered.polled_at < oldest]
        if late:  # fetch less ahead, or they would come back at once
            self._prefetch.took(_MOST_WAITING_SECONDS)
            self._link.drop_prefetch()
        self._give_back_waiting(late)

    def _give_back_waiting(self, unwanted: Iterable[Delivered]) -> None:
        for delivered in tuple(unwanted):
            self._waiting.remove(delivered)
            self._release_lease(delivered.delivery.id)
            self._give_back(delivered.delivery)

    def _give_back(self, delivery: Delivery) -> None:
        self._being_given_back.add(delivery.id)
        self._link.give_back(delivery)

    # --- leases -----------------------------------------------------------------------------------
    def _keep_leases(self) -> None:
        """Have the leases kept of all that is not short: waiting, running, dead but unreported."""
        oldest = self._clock.monotonic() - _SHORT_SECONDS
        for delivered in self._waiting:
            if delivered.polled_at < oldest:
                budget = self._budget_of(delivered.delivery)
                self._keep_lease(delivered.delivery, budget, delivered.polled_at)
        dead = [each.running for each in self._death_reports.values() if not each.is_sent]
        for running in (*self.running, *dead):
            leased_at = running.assignment.leased_at
            if leased_at < oldest and running.step is not AttemptStep.REPORT:
                self._keep_lease(running.delivery, running.budget, leased_at)

    def _keep_lease(self, delivery: Delivery, budget: PublishBudget, leased_at: float) -> None:
        if delivery.id not in self._kept_leases:
            self._kept_leases.add(delivery.id)
            self._link.keep_lease(delivery, budget.heartbeat_interval_seconds, leased_at)

    def _release_lease(self, delivery_id: str, *, confirm: bool = False) -> None:
        if delivery_id in self._kept_leases or confirm:
            self._kept_leases.discard(delivery_id)
            self._link.release_lease(delivery_id, confirm=confirm)

    # --- what the link says -----------------------------------------------------------------------
    def _wait_for_link(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Handle the link's events alone, so long or as long as ``condition`` holds."""
        deadline = self._clock.monotonic() + seconds
        while condition() and (left := deadline - self._clock.monotonic()) > 0:
            self._waiter.wait(self._link.connections, left)
            self._handle_link_events()

    def _handle_link_events(self) -> None:
        for event in self._link.events():
            self._handle(event)

    def _handle(self, event: LinkEvent) -> None:
        match event:
            case Delivered() if self._takes_work:
                self._take(event)
            case Delivered(delivery):
                self._give_back(delivery)
            case QueueEmpty(dropped):
                self._prefetch.ran_dry(dropped)
            case PollingStopped():
                self._is_polling = False
            case LeaseRenewed() | HeartbeatsStopped():
                self._forward(event)
            case LeaseLost():
                self._handle_lost_lease(event)
            case DeathReported(delivery_id, receipt):
                status = receipt.status if receipt else None
                self._end_death_report(delivery_id, status, otherwise=Ending.SUPERSEDED)
            case GivenBack(delivery_id):
                self._being_given_back.discard(delivery_id)
            case OrchestratorReachable() | OrchestratorUnreachable():
                self._observer.observe(event)

    def _take(self, delivered: Delivered) -> None:
        self._prefetch.used()
        try:
            self._find_task(delivered.delivery.attempt)
        except RuntimeConfigError as error:
            self._refuse(delivered.delivery, error)
        else:
            self._waiting.append(delivered)

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """Fail an attempt whose task this worker doesn't serve."""
        report = failed(error)
        ended = AttemptEnded(delivery.attempt, Ending.ACCEPTED, report.status, report.reason)
        self._observer.observe(ended)
        self._link.report_death(delivery, report)

    def _forward(self, event: LeaseRenewed | HeartbeatsStopped) -> None:
        """Tell the executor about its lease."""
        for slot in self._slots:
            if slot.runs(event.delivery_id) and (running := slot.running):
                slot.send(event)
                if isinstance(event, LeaseRenewed):
                    self._observer.observe(HeartbeatAccepted(running.attempt))

    def _handle_lost_lease(self, lost: LeaseLost) -> None:
        for slot in self._slots:
            if slot.runs(lost.delivery_id) and (running := slot.running):
                self._stop_unless_reporting(slot, running, lost)
        for delivered in list(self._waiting):
            if delivered.delivery.id == lost.delivery_id:
                self._waiting.remove(delivered)
                self._release_lease(lost.delivery_id)
        self._end_death_report(lost.delivery_id, lost.status, otherwise=Ending.UNKNOWN)

    def _stop_unless_reporting(self, slot: Slot, running: RunningAttempt, lost: LeaseLost) -> None:
        if may_finish(running, lost):
            return
        if slot.end() is not None:
            reason = f"stopped, as it is no longer the current attempt: {lost.why}"
            ended = AttemptEnded(running.attempt, Ending.LEASE_LOST, reason=reason)
            self._observer.observe(ended)
        self._release_lease(lost.delivery_id)
        self._paths.clean_up()

    def _end_death_report(
        self, delivery_id: str, status: TaskStatus | None, *, otherwise: Ending
    ) -> None:
        pending = self._death_reports.pop(delivery_id, None)
        if pending is None:
            return
        self._release_lease(delivery_id)
        # The executor may have died after its own report was accepted: then that one counts.
        is_ours = status == pending.report.status
        reason = pending.report.reason if is_ours else None
        ending = Ending.ACCEPTED if status else otherwise
        self._observer.observe(AttemptEnded(pending.running.attempt, ending, status, reason))


def may_finish(running: RunningAttempt, lost: LeaseLost) -> bool:
    """Whether an attempt goes on although its lease is lost.

    One that reports has just ended its lease itself. One that publishes, and whose task was
    delivered again, may still report: its result may be accepted.
    """
    if running.step is AttemptStep.REPORT:
        return True
    return lost.delivered_again and running.is_publishing


def executor_lost(running: RunningAttempt, death: str, on: str) -> ExecutorLostError:
    """Why an attempt failed whose executor died; ``on`` is the option that finds its logs."""
    during = f" during {running.step.value!r}" if running.step else ""
    hint = ""
    if running.step is AttemptStep.BODY and death.endswith("SIGKILL"):
        hint = " (out of memory?)"
    elif running.step is AttemptStep.PUBLISH:
        hint = ": it may have published, and the retry sees to that"
    run_id = running.attempt.workflow_instance_id
    return ExecutorLostError(
        f"the process running {running.attempt.task_name} {death}{during}{hint}",
        fix=f"`perago runs {run_id} --logs{on}` shows what it printed",
    )


def died_before_ready(death: str) -> ExecutorLostError:
    return ExecutorLostError(
        f"the process that runs tasks {death} before it was ready",
        fix="its output says why; `perago doctor` checks the installation",
    )
