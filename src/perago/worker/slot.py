"""A slot: one executor process, replaced when it dies, and the attempt that it runs."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from perago.backoff import Backoff
from perago.model.attempt import AttemptStep, TaskStatus
from perago.wiring import spark_scratch
from perago.worker.attempt_log import collect_spool
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    StepEnded,
    StepProgressed,
    StepStarted,
)
from perago.worker.messages import (
    Assignment,
    ConnectionWaiter,
    Finished,
    Ready,
    ReportPending,
    SharedStep,
    StartFailed,
    StepEnd,
    StepProgress,
    StepStart,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from perago.model.attempt import Attempt, Delivery
    from perago.model.controls import PublishBudget
    from perago.ports.environment import Clock
    from perago.worker.events import Observer
    from perago.worker.messages import ExecutorConfig, FromExecutor, ServedTask, ToExecutor

_START_BACKOFF = Backoff(first=1.0, longest=30.0)
_TERMINATION_GRACE_SECONDS = 1.0
_KERNEL_COUNTERS = Path("/proc/vmstat")


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that an executor has, and the step it was at when this value was made."""

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
        """Whether it is better finished than stopped."""
        return self.step in (AttemptStep.PUBLISH, AttemptStep.REPORT)

    @property
    def settle_seconds(self) -> float:
        """How long a request that its executor had just sent may still take effect."""
        match self.step:
            case AttemptStep.PUBLISH:
                return float(self.budget.lakefs_merge_timeout_seconds)
            case AttemptStep.REPORT:
                return float(self.budget.conductor_completion_timeout_seconds)
            case _:
                return 0.0


@dataclass(frozen=True, slots=True)
class Reporting:
    """An attempt reports now: its lease needs no more heartbeats.

    With ``waits``, its executor waits for the word that no heartbeat is in flight.
    """

    delivery_id: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Ended:
    running: RunningAttempt


SlotEvent: TypeAlias = Reporting | Ended


class Slot:
    """Runs one attempt at a time, and passes the executor's news of it to the observer."""

    def __init__(
        self,
        config: ExecutorConfig,
        clock: Clock,
        observer: Observer,
        start: Callable[[ExecutorConfig], ExecutorProcess] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._observer = observer
        self._start = start or ExecutorProcess
        self._executor: ExecutorProcess | None = None
        self._running: RunningAttempt | None = None
        self._pause = 0.0
        self._paused_until = 0.0
        self.is_ready = False
        self.tasks: tuple[ServedTask, ...] = ()

    @property
    def running(self) -> RunningAttempt | None:
        """The attempt, and the step that it is at right now."""
        if self._running is None or self._executor is None:
            return self._running
        return replace(self._running, step=self._executor.step)

    @property
    def is_busy(self) -> bool:
        return self._running is not None

    @property
    def is_free(self) -> bool:
        """Whether it can take an attempt. An executor that still starts would eat its lease."""
        return self.is_ready and not self.is_busy

    @property
    def connections(self) -> list[Connection]:
        return [self._executor.connection] if self._executor else []

    def runs(self, delivery_id: str) -> bool:
        return self._running is not None and self._running.delivery.id == delivery_id

    def has_message_in(self, ready: Collection[object]) -> bool:
        """Whether there is something to receive from its executor, if only that it is dead."""
        return self._executor is not None and self._executor.connection in ready

    def ensure_started(self) -> None:
        """Start an executor if there is none, unless this is a pause after failed starts."""
        if self._executor is None and self._clock.monotonic() >= self._paused_until:
            self._executor = self._start(self._config)

    def pause(self) -> None:
        """Start no executor for a while; longer each time until one gets ready."""
        self._pause = _START_BACKOFF.after(self._pause)
        self._paused_until = self._clock.monotonic() + self._pause

    def assign(self, running: RunningAttempt) -> None:
        self._running = running
        self._observer.observe(AttemptStarted(running.assignment.execution))
        if self._executor is not None:
            self._executor.assign(running.assignment)

    def send(self, message: ToExecutor) -> None:
        if self._executor is not None:
            self._executor.send(message)

    def receive(self) -> list[SlotEvent]:
        """Handle what the executor has sent since; return what concerns the attempt's lease.

        Raises the error of an executor that could not start.
        """
        messages = self._executor.messages() if self._executor else ()
        return [event for message in messages if (event := self._handle(message)) is not None]

    def death(self) -> str | None:
        """Why the executor is gone, in words; None while it runs."""
        return self._executor.death() if self._executor else None

    def ask_to_end(self) -> None:
        if self._executor is not None:
            self._executor.ask_to_end()

    def end(self) -> RunningAttempt | None:
        """End the executor; return the attempt that it did not finish, with its last step."""
        executor, self.is_ready = self._executor, False
        if executor is None:
            return None
        last_messages = executor.end()
        running = self.running
        self._executor = None
        for message in last_messages if self._running else ():
            self._handle(message)
        unfinished = running if self._running else None
        self._running = None
        shutil.rmtree(spark_scratch(self._config.settings, executor.pid), ignore_errors=True)
        if spool := self._config.spool_of(executor.pid):
            collect_spool(spool, unfinished.assignment.output_log if unfinished else None)
        executor.forget()
        return unfinished

    def _handle(self, message: FromExecutor) -> SlotEvent | None:
        match message:
            case Ready(tasks):
                self.is_ready, self.tasks, self._pause = True, tasks, 0.0
            case StartFailed(error):
                self.end()
                self.pause()
                raise error
            case _ if self._running is not None:
                return self._handle_news_of(self._running, message)
        return None

    def _handle_news_of(self, running: RunningAttempt, message: FromExecutor) -> SlotEvent | None:
        attempt = running.attempt
        match message:
            case StepStart(step):
                self._observer.observe(StepStarted(attempt, step))
                if step is AttemptStep.REPORT:
                    return Reporting(running.delivery.id, waits=False)
            case StepEnd(fields):
                self._observer.observe(StepEnded(attempt, fields))
            case StepProgress(step, progress):
                self._observer.observe(StepProgressed(attempt, step, progress))
            case ReportPending():
                return Reporting(running.delivery.id, waits=True)
            case Finished(status, reason, accepted):
                ending = Ending.ACCEPTED if accepted else Ending.NOT_ACCEPTED
                self._running = None
                self._observer.observe(AttemptEnded(attempt, ending, status, reason))
                if status is not TaskStatus.COMPLETED:
                    self.end()  # a retry gets a process in which nothing went wrong
                return Ended(running)
        return None


class ExecutorProcess:
    """An executor seen from the supervisor: a child process, its socket, and how to end it.

    It leads a session of its own, so that all processes of a task end with it.
    """

    def __init__(self, config: ExecutorConfig) -> None:
        self._oom_kills = oom_kills()
        self._shared = SharedStep.new()
        ours, theirs = socket.socketpair()
        passed = [theirs.fileno(), self._shared.descriptor]
        with theirs:
            self._process = subprocess.Popen(
                # -P: a user's queue.py in the current directory is not the standard library's.
                [sys.executable, "-P", "-m", "perago.worker.executor", *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
            )
        self.connection = Connection(ours.detach())
        self._waiter = ConnectionWaiter()
        self.connection.send(config)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def step(self) -> AttemptStep | None:
        """The step it is at, or was at when it ended; None before an attempt's first step."""
        return self._shared.step

    def assign(self, assignment: Assignment) -> None:
        self._shared.step = None  # the executor is idle, so it does not write there
        self.send(assignment)

    def send(self, message: ToExecutor) -> None:
        """Never raises for a dead executor: :meth:`death` says that it is dead, and why."""
        with suppress(OSError):
            self.connection.send(message)

    def messages(self) -> list[FromExecutor]:
        """What it has sent since, without waiting."""
        received: list[FromExecutor] = []
        with suppress(EOFError, OSError):
            while self._waiter.wait([self.connection], 0):
                received += self.connection.recv()
        return received

    def death(self) -> str | None:
        """Why it ended, in words; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        if code >= 0:
            return f"exited with code {code}"
        name = signal.Signals(-code).name
        if -code == signal.SIGKILL and oom_kills() > self._oom_kills:
            return f"was ended by {name}: the system was out of memory"
        return f"was ended by {name}"

    def ask_to_end(self) -> None:
        """Send SIGTERM and return, so that several executors end at the same time."""
        self._signal_group(signal.SIGTERM)

    def end(self) -> list[FromExecutor]:
        """End it and every process that it started; return the last messages it sent."""
        self.ask_to_end()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_TERMINATION_GRACE_SECONDS)
        self._signal_group(signal.SIGKILL)  # also children that outlive the executor
        self._process.wait()
        last_messages = self.messages()
        self.connection.close()
        return last_messages

    def forget(self) -> None:
        """Free what is left after :meth:`end`; there is no :attr:`step` any more."""
        self._shared.close()

    def _signal_group(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def oom_kills() -> int:
    """How often this system has killed a process for lack of memory; 0 if it does not say."""
    try:
        counters = dict(line.split() for line in _KERNEL_COUNTERS.read_text().splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))
