"""One place to run attempts: an executor process, and the attempt it is at."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.backoff import Backoff
from perago.errors import ExecutorLostError, PeragoError
from perago.model.attempt import AttemptStep, TaskStatus
from perago.wiring import spark_scratch
from perago.worker.attempt_log import release
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    StepEnded,
    StepProgressed,
    StepStarted,
)
from perago.worker.executor_handle import ExecutorProcess
from perago.worker.messages import (
    Assignment,
    Finished,
    Ready,
    Reporting,
    StartFailed,
    StepEnd,
    StepProgress,
    StepStart,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from multiprocessing.connection import Connection

    from perago.model.attempt import Attempt, Delivery
    from perago.model.controls import PublishBudget
    from perago.ports.environment import Clock
    from perago.worker.events import Observer
    from perago.worker.messages import ExecutorConfig, FromExecutor, ServedTask, ToExecutor

PUBLISHING_STEPS = frozenset({AttemptStep.PUBLISH, AttemptStep.REPORT})
"""Steps that are better finished than broken off."""

_RESTARTS = Backoff(first=1.0, longest=30.0)


@dataclass(slots=True)
class RunningAttempt:
    """An attempt in hand: what it is, and the step it was at when last looked at."""

    assignment: Assignment
    budget: PublishBudget
    began_at: float
    step: AttemptStep | None = None

    @property
    def delivery(self) -> Delivery:
        return self.assignment.delivery

    @property
    def attempt(self) -> Attempt:
        return self.assignment.delivery.attempt

    @property
    def is_publishing(self) -> bool:
        return self.step in PUBLISHING_STEPS

    @property
    def seconds_to_settle(self) -> float:
        """How long a request that its executor had just sent may be on its way."""
        if self.step == AttemptStep.PUBLISH:
            return float(self.budget.lakefs_merge_timeout_seconds)
        return float(self.budget.conductor_completion_timeout_seconds if self.is_publishing else 0)


@dataclass(frozen=True, slots=True)
class Ended:
    """An attempt was reported, or given up, and cleaned up after."""

    work: RunningAttempt


class Slot:
    """An executor, started fresh whenever the last one is gone."""

    def __init__(
        self,
        employment: ExecutorConfig,
        clock: Clock,
        watcher: Observer,
        start: Callable[[ExecutorConfig], ExecutorProcess] = ExecutorProcess,
    ) -> None:
        self._employment = employment
        self._clock = clock
        self._watcher = watcher
        self._start = start
        self._executor: ExecutorProcess | None = None
        self.is_ready = False
        self.work: RunningAttempt | None = None
        self.tasks: tuple[ServedTask, ...] = ()
        self._rest_seconds = 0.0
        self._rests_until = 0.0

    @property
    def is_free(self) -> bool:
        """Only a warm one is: starting up must not eat a lease."""
        return self.is_ready and self.work is None

    @property
    def pid(self) -> int | None:
        return self._executor.pid if self._executor else None

    @property
    def connections(self) -> list[Connection]:
        return [self._executor.connection] if self._executor else []

    def staff(self) -> None:
        """See to it that there is an executor, unless the last ones couldn't even start."""
        if self._executor is None and self._clock.monotonic() >= self._rests_until:
            self._executor = self._start(self._employment)

    def rest(self) -> None:
        """Wait before the next executor is started, longer each time one wasn't ready first."""
        self._rest_seconds = _RESTARTS.after(self._rest_seconds)
        self._rests_until = self._clock.monotonic() + self._rest_seconds

    def assign(self, work: RunningAttempt) -> None:
        self.work = work
        self._watcher.observe(AttemptStarted(work.assignment.execution))
        if self._executor is not None:
            self._executor.assign(work.assignment)

    def tell(self, message: ToExecutor) -> None:
        if self._executor is not None:
            self._executor.send(message)

    def hear(self) -> list[StepStart | Reporting | Ended]:
        """Listen to the executor; what it says of the lease of its attempt."""
        messages = self._executor.messages() if self._executor else ()
        return [said for message in messages if (said := self._hear(message)) is not None]

    def look(self) -> None:
        """See which step its attempt is at."""
        if self.work is not None and self._executor is not None:
            self.work.step = self._executor.step

    def ask_to_end(self) -> None:
        if self._executor is not None:
            self._executor.ask_to_end()

    def end(self) -> RunningAttempt | None:
        """End the executor; the attempt it was at, and how far that had come at last."""
        executor, self.is_ready = self._executor, False
        if executor is None:
            return None
        last_words = executor.end()
        self.look()
        self._executor = None
        for message in last_words if self.work else ():
            self._hear(message)
        work, self.work = self.work, None
        shutil.rmtree(spark_scratch(self._employment.settings, executor.pid), ignore_errors=True)
        if spool := self._employment.spool_of(executor.pid):
            release(spool, work.assignment.output_log if work else None)
        executor.forget()
        return work

    def death(self) -> str | None:
        """Why the executor is gone, in words; None while it runs."""
        return self._executor.death() if self._executor else None

    def is_among(self, ready: Collection[object]) -> bool:
        """Whether there is something to hear from its executor, if only that it is gone."""
        return self._executor is not None and self._executor.connection in ready

    def _hear(self, message: FromExecutor) -> StepStart | Reporting | Ended | None:
        if isinstance(message, Ready):
            self.is_ready, self.tasks, self._rest_seconds = True, message.tasks, 0.0
            return None
        if isinstance(message, StartFailed):
            self.end()
            self.rest()
            raise message.error
        work = self.work
        if work is None:
            return None
        match message:
            case StepStart(step):
                self._watcher.observe(StepStarted(work.attempt, step))
                return message if step == AttemptStep.REPORT else None
            case StepEnd(fields):
                self._watcher.observe(StepEnded(work.attempt, fields))
            case StepProgress(step, progress):
                self._watcher.observe(StepProgressed(work.attempt, step, progress))
            case Reporting():
                return message
            case Finished():
                return self._finish(work, message)
        return None

    def _finish(self, work: RunningAttempt, told: Finished) -> Ended:
        ending = Ending.ACCEPTED if told.accepted else Ending.NOT_ACCEPTED
        self.work = None
        self._watcher.observe(AttemptEnded(work.attempt, ending, told.status, told.reason))
        if told.status is not TaskStatus.COMPLETED:
            self.end()  # a retry starts from a process nothing went wrong in
        return Ended(work)


def lost(work: RunningAttempt, death: str, on: str) -> ExecutorLostError:
    """Why an attempt failed whose executor is gone; ``on`` is where its logs are to be found."""
    during = f" during '{work.step}'" if work.step else ""
    hint = ""
    if work.step == AttemptStep.BODY and death.endswith("SIGKILL"):
        hint = " (out of memory?)"
    elif work.step == AttemptStep.PUBLISH:
        hint = ": it may have published, and the retry sees to that"
    return ExecutorLostError(
        f"the process running {work.attempt.task_name} {death}{during}{hint}",
        fix=f"`perago runs {work.attempt.workflow_instance_id} --logs{on}` shows what it printed",
    )


def not_even_started(death: str) -> PeragoError:
    return ExecutorLostError(
        f"the process that runs tasks {death} before it was ready",
        fix="what it printed says why; `perago doctor` checks the installation",
    )
