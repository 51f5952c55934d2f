"""Hands work to executors, keeps its leases alive, and notices when an executor is gone.

One supervisor, one desk to the orchestrator, some slots with an executor each. It runs no task code
and loads none. Whether an attempt still counts is the orchestrator's word: once it says no, the
executor is stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError
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
from perago.worker.executor_handle import ConnectionWaiter
from perago.worker.heartbeats import LeaseLost
from perago.worker.messages import Assignment, HeartbeatsStopped, LeaseRenewed, Reporting
from perago.worker.orchestrator_link import (
    DeathReported,
    Delivered,
    GivenBack,
    PollingStopped,
    Prefetch,
    QueueEmpty,
)
from perago.worker.slot import Ended, RunningAttempt, lost, not_even_started

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perago.model.attempt import Attempt, Delivery, TaskStatus
    from perago.model.controls import PublishBudget, TaskControls
    from perago.model.outcome import TaskReport
    from perago.ports.environment import Clock
    from perago.worker.events import Observer
    from perago.worker.orchestrator_link import LinkEvent, OrchestratorLink
    from perago.worker.slot import Slot


_LOOK_SECONDS = 1.0
_WAITING_SECONDS = 3.0
_SHORT_SECONDS = 0.5
"""Attempts that are over by then are never heard of by who keeps leases: none needs renewing."""


@dataclass(frozen=True, slots=True)
class Served:
    """Where an attempt's task is found, and how it is to be treated."""

    module: str
    controls: TaskControls


TaskLookup = Callable[["Attempt"], Served]


@dataclass(frozen=True, slots=True)
class WorkerPaths:
    """What attempts leave on this machine, and where: ``clear`` removes what dead ones left.

    ``requests_outlive_us`` says whether a request may be applied after its sender died; ``on`` is
    what has to be said on a command line to find the runs that are worked on.
    """

    logs: Callable[[Attempt], Path]
    clear: Callable[[], None]
    requests_outlive_us: bool
    on: str


@dataclass(slots=True)
class _PendingDeathReport:
    """An attempt whose executor died, to be reported when its requests can land no more."""

    work: RunningAttempt
    report: TaskReport
    due_at: float
    told: bool = False


class Supervisor:
    """:meth:`tick` is one round of its loop."""

    def __init__(
        self,
        desk: OrchestratorLink,
        slots: Sequence[Slot],
        catalogue: TaskLookup,
        *,
        paths: WorkerPaths,
        clock: Clock,
        watcher: Observer,
    ) -> None:
        self._desk = desk
        self._slots = slots
        self._catalogue = catalogue
        self._place = paths
        self._clock = clock
        self._watcher = watcher
        self._ears = ConnectionWaiter()
        self._offers = Prefetch(len(slots))
        self._waiting: list[Delivered] = []
        self._held: set[str] = set()
        self._obituaries: dict[str, _PendingDeathReport] = {}
        self._leaving: set[str] = set()
        self._takes_work = True
        self._is_asking = True
        self._looked_at = clock.monotonic()

    @property
    def works(self) -> list[RunningAttempt]:
        """What is being done, and the step that each is at right now."""
        for slot in self._slots:
            slot.look()
        return [slot.work for slot in self._slots if slot.work is not None]

    @property
    def busy(self) -> bool:
        """Whether there is anything that isn't done with, the dead included."""
        return bool(self.works or self._obituaries or self._waiting or self._leaving)

    @property
    def publishing(self) -> bool:
        return any(work.is_publishing for work in self.works)

    @property
    def grace_seconds(self) -> float:
        """How long what is being done may take to finish once everything shall stop."""
        graces = [work.budget.worker_shutdown_grace_seconds for work in self.works]
        return float(max(graces, default=0))

    def start(self) -> None:
        """Clean up after the dead, then start the executors, to be warm when work comes."""
        self._place.clear()
        for slot in self._slots:
            slot.staff()

    def tick(self, seconds: float) -> None:
        """Offer free slots, listen for up to ``seconds``, then see to deaths and news.

        Raises ExecutorLostError if an executor can't even be started, or what it says it can't do.
        """
        for slot in self._slots:
            slot.staff()
        self._fill()
        self._offer()
        self._hold_what_lasts()
        listened_to = [connection for slot in self._slots for connection in slot.connections]
        ready = self._ears.listen([*listened_to, *self._desk.connections], seconds)
        now = self._clock.monotonic()
        # All of them now and then: a child of the dead may hold its end of the line open.
        look_at_all = not ready or now - self._looked_at > _LOOK_SECONDS
        self._looked_at = now if look_at_all else self._looked_at
        for slot in self._slots:
            if look_at_all or slot.is_among(ready):
                self._hear(slot)
                self._notice_death(slot)
        self._announce_deaths()
        for told in self._desk.news():
            self._react(told)
        self._fill()

    def take_no_more(self, seconds: float) -> None:
        """Ask for no more work, and wait for that long until what was asked for is answered.

        What is handed out to us from now on is given back.
        """
        self._takes_work = False
        self._give_back_waiting(self._waiting)
        self._desk.stop_asking()
        self._listen(seconds, lambda: self._is_asking)

    def stop(self) -> None:
        """End the executors and clean up what they were at. Their attempts stay as they are."""
        for slot in self._slots:
            slot.ask_to_end()
        for slot in self._slots:
            slot.end()
        self._place.clear()

    def leave(self) -> None:
        """End the executors, and give back what hadn't begun to publish.

        What had begun stays as it is: its lease ends, and the retry sees what became of it.
        """
        for slot in self._slots:
            slot.ask_to_end()
        for slot in self._slots:
            work = slot.end()
            if work is None:
                continue
            given_back = not work.is_publishing
            ending = Ending.GIVEN_BACK if given_back else Ending.LEFT_TO_LEASE
            self._watcher.observe(AttemptEnded(work.attempt, ending))
            self._let_go(work.delivery.id)
            if given_back:
                self._give_back(work.delivery)
        self._give_back_waiting(self._waiting)
        self._place.clear()

    def settle(self, seconds: float) -> None:
        """Wait for that long for answers about what was given back, or may have to be."""
        self._listen(seconds, lambda: self._is_asking or bool(self._leaving))

    def _listen(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Listen to the desk alone, for that long or as long as ``condition`` holds."""
        deadline = self._clock.monotonic() + seconds
        while condition() and (left := deadline - self._clock.monotonic()) > 0:
            self._ears.listen(self._desk.connections, left)
            for told in self._desk.news():
                self._react(told)

    # --- taking work ------------------------------------------------------------------------------
    def _offer(self) -> None:
        if not self._takes_work:
            return
        free = sum(slot.is_free for slot in self._slots)
        slots, ahead = self._offers.due(free=free, waiting=len(self._waiting))
        if slots or ahead:
            self._desk.offer(slots, ahead)

    def _fill(self) -> None:
        """Whoever was offered a slot gets one, also if that one's executor died meanwhile."""
        for slot in self._slots:
            if self._waiting and slot.is_free:
                slot.assign(self._work(self._waiting.pop(0)))
        self._give_back_the_unwanted()

    def _give_back_the_unwanted(self) -> None:
        """No executor gets around to it: somebody else may be able to take it."""
        oldest = self._clock.monotonic() - _WAITING_SECONDS
        unwanted = [d for d in self._waiting if d.asked_at < oldest]
        if unwanted:  # or they would come back at once
            self._offers.took(_WAITING_SECONDS)
            self._desk.withdraw()
        self._give_back_waiting(unwanted)

    def _give_back_waiting(self, unwanted: Sequence[Delivered]) -> None:
        for delivered in tuple(unwanted):
            self._waiting.remove(delivered)
            self._let_go(delivered.delivery.id)
            self._give_back(delivered.delivery)

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        """Fail an attempt that can't even be begun here."""
        report = failed(error)
        self._watcher.observe(
            AttemptEnded(delivery.attempt, Ending.ACCEPTED, report.status, report.reason)
        )
        self._desk.speak_for(delivery, report)

    def _work(self, delivered: Delivered) -> RunningAttempt:
        delivery, attempt = delivered.delivery, delivered.delivery.attempt
        served, budget = self._catalogue(attempt), self._budget_of(delivery)
        logs = self._place.logs(attempt)
        name = f"{name_part(attempt.reference_task_name)}-{attempt.retry_count}"
        assignment = Assignment(
            delivery,
            Execution.begin(attempt),
            served.module,
            leased_at=delivered.asked_at,
            heartbeat_seconds=budget.heartbeat_interval_seconds,
            events_log=logs / "events.jsonl",
            output_log=logs / f"{name}.log",
        )
        return RunningAttempt(assignment, budget, began_at=self._clock.monotonic())

    def _budget_of(self, delivery: Delivery) -> PublishBudget:
        controls = self._catalogue(delivery.attempt).controls
        return controls.budget_within(delivery.response_seconds)

    def _hear(self, slot: Slot) -> None:
        for said in slot.hear():
            if isinstance(said, Ended):
                self._offers.took(self._clock.monotonic() - said.work.began_at)
                self._let_go(said.work.delivery.id)
            elif slot.work is not None:
                self._let_go(slot.work.delivery.id, tell=isinstance(said, Reporting))

    # --- leases -----------------------------------------------------------------------------------
    def _hold_what_lasts(self) -> None:
        """Have leases kept of all that isn't over soon, those of the dead until it is said."""
        oldest = self._clock.monotonic() - _SHORT_SECONDS
        for delivered in self._waiting:
            if delivered.asked_at < oldest:
                self._hold(
                    delivered.delivery, self._budget_of(delivered.delivery), delivered.asked_at
                )
        dead = [each.work for each in self._obituaries.values() if not each.told]
        for work in (*self.works, *dead):
            if work.assignment.leased_at < oldest and work.step != AttemptStep.REPORT:
                self._hold(work.delivery, work.budget, work.assignment.leased_at)

    def _hold(self, delivery: Delivery, budget: PublishBudget, leased_at: float) -> None:
        if delivery.id not in self._held:
            self._held.add(delivery.id)
            self._desk.hold(delivery, budget.heartbeat_interval_seconds, leased_at)

    def _let_go(self, delivery_id: str, *, tell: bool = False) -> None:
        if delivery_id in self._held or tell:
            self._held.discard(delivery_id)
            self._desk.let_go(delivery_id, tell=tell)

    # --- news -------------------------------------------------------------------------------------
    def _react(self, told: LinkEvent) -> None:
        match told:
            case Delivered() if not self._takes_work:
                self._give_back(told.delivery)
            case Delivered():
                self._take(told)
            case QueueEmpty(dropped):
                self._offers.ran_dry(dropped)
            case PollingStopped():
                self._is_asking = False
            case LeaseRenewed() | HeartbeatsStopped():
                self._pass_on(told)
            case LeaseLost():
                self._stop_lost(told)
            case DeathReported(delivery_id, receipt):
                status = receipt.status if receipt else None
                self._end_obituary(delivery_id, status, otherwise=Ending.SUPERSEDED)
            case GivenBack(delivery_id):
                self._leaving.discard(delivery_id)
            case OrchestratorReachable() | OrchestratorUnreachable():
                self._watcher.observe(told)

    def _take(self, delivered: Delivered) -> None:
        self._offers.used()
        try:
            self._catalogue(delivered.delivery.attempt)
        except RuntimeConfigError as error:
            self._refuse(delivered.delivery, error)
            return
        self._waiting.append(delivered)

    def _pass_on(self, told: LeaseRenewed | HeartbeatsStopped) -> None:
        """Tell the executor how its lease is."""
        for slot in self._slots_at(told.delivery_id):
            slot.tell(told)
            if isinstance(told, LeaseRenewed) and slot.work is not None:
                self._watcher.observe(HeartbeatAccepted(slot.work.attempt))

    def _slots_at(self, delivery_id: str) -> list[Slot]:
        return [s for s in self._slots if s.work and s.work.delivery.id == delivery_id]

    def _stop_lost(self, lost_: LeaseLost) -> None:
        for slot in self._slots_at(lost_.delivery_id):
            slot.look()
            work = slot.work
            # What it publishes may still be accepted, if it is left to report it; and that an
            # attempt has ended is no news to one that has just reported it.
            if work is None or work.step == AttemptStep.REPORT:
                continue
            if lost_.delivered_again and work.is_publishing:
                continue
            if slot.end() is not None:
                reason = f"stopped, as it is no longer the current attempt: {lost_.why}"
                self._watcher.observe(AttemptEnded(work.attempt, Ending.LEASE_LOST, reason=reason))
            self._let_go(lost_.delivery_id)
            self._place.clear()
        for delivered in list(self._waiting):
            if delivered.delivery.id == lost_.delivery_id:
                self._waiting.remove(delivered)
                self._let_go(lost_.delivery_id)
        self._end_obituary(lost_.delivery_id, lost_.status, otherwise=Ending.UNKNOWN)

    # --- death ------------------------------------------------------------------------------------
    def _notice_death(self, slot: Slot) -> None:
        if (death := slot.death()) is None:
            return
        was_ready = slot.is_ready
        self._hear(slot)  # what it said last, above all how far it came
        work = slot.end()
        self._place.clear()
        self._watcher.observe(ExecutorLost(work.attempt if work else None, death))
        if not was_ready:
            slot.rest()
            raise not_even_started(death)
        if work is None:
            return
        report = failed(lost(work, death, self._place.on))
        report = replace(report, logs=last_printed(work.assignment.output_log))
        waits = work.seconds_to_settle if self._place.requests_outlive_us else 0.0
        due_at = self._clock.monotonic() + waits
        self._obituaries[work.delivery.id] = _PendingDeathReport(work, report, due_at)

    def _announce_deaths(self) -> None:
        """At once, unless a request of the dead may still land.

        Until then its lease is kept, so that no retry meets a branch that is about to move.
        """
        for obituary in self._obituaries.values():
            if not obituary.told and self._clock.monotonic() >= obituary.due_at:
                obituary.told = True
                self._desk.speak_for(obituary.work.delivery, obituary.report)

    def _end_obituary(
        self, delivery_id: str, status: TaskStatus | None, *, otherwise: Ending
    ) -> None:
        obituary = self._obituaries.pop(delivery_id, None)
        if obituary is None:
            return
        self._let_go(delivery_id)
        # It may have died after its own report was accepted: then that one stands.
        stands = status == obituary.report.status
        reason = obituary.report.reason if stands else None
        ending = Ending.ACCEPTED if status else otherwise
        self._watcher.observe(AttemptEnded(obituary.work.attempt, ending, status, reason))

    def _give_back(self, delivery: Delivery) -> None:
        self._leaving.add(delivery.id)
        self._desk.give_back(delivery)
