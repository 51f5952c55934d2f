"""An executor: a process of its own that runs attempts one after another.

Started by a supervisor as ``python -m perago.worker.executor SOCKET MEMORY``. A task's code runs in
its main thread, so a crash, a hang or an exhausted memory ends this process and nothing else. When
its supervisor is gone it ends itself: nobody would keep its lease alive.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NoReturn

from perago.declare.loading import find_task, load_module, tasks_of
from perago.declare.signature import SPARK
from perago.declare.task import by_name
from perago.errors import PeragoError, TaskDefinitionError
from perago.flow.lifecycle import run_attempt
from perago.flow.report import failed, hand_in
from perago.model.attempt import AttemptStep
from perago.model.outcome import AttemptOutcome
from perago.wiring import build_runtime, preload
from perago.worker.attempt_log import AttemptLog, ExecutorJournal, Outbox
from perago.worker.body_isolation import Output, contained
from perago.worker.executor_handle import SharedStep
from perago.worker.messages import (
    Assignment,
    Finished,
    HeartbeatsStopped,
    LeaseRenewed,
    Ready,
    Reporting,
    ServedTask,
    StartFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.declare.task import AnyTask
    from perago.flow.runtime import Runtime
    from perago.worker.messages import ExecutorConfig, ToExecutor

ORPHANED_EXIT_CODE = 75

HEARTBEAT_TIMEOUT_SECONDS = 40.0
"""Longer than any heartbeat can take: its few requests have time-outs."""

LASTING_SECONDS = 0.25
"""How long an attempt may take before the supervisor hears of it, and a record is kept of it."""

_SOON_SECONDS = 2.0


class RenewedLease:
    """A lease that a supervisor in another process keeps alive, on the machine's one clock.

    ``listen`` has somebody listen to that supervisor now.
    """

    def __init__(self, outbox: Outbox, listen: Callable[[], None]) -> None:
        self._outbox = outbox
        self._listen = listen
        self._supervisor = os.getppid()
        self._response_seconds = 0.0
        self._heartbeat_seconds = 0.0
        self._renewed_at = 0.0
        self._quiet = threading.Event()

    def begin(self, assignment: Assignment) -> None:
        self._response_seconds = assignment.delivery.response_seconds
        self._heartbeat_seconds = assignment.heartbeat_seconds
        self._renewed_at = assignment.leased_at
        self._quiet.clear()

    def renew(self, at: float) -> None:
        self._renewed_at = max(self._renewed_at, at)

    def remaining(self) -> float:
        if not self._response_seconds:
            return float("inf")
        return self._renewed_at + self._response_seconds - time.monotonic()

    def stop_heartbeats(self) -> None:
        """Waits only if a heartbeat may be under way, and then no longer than one may take."""
        if os.getppid() != self._supervisor:  # and perhaps nobody has kept the lease since
            _end_orphaned()
        since = time.monotonic() - self._renewed_at
        waits = since > self._heartbeat_seconds - _SOON_SECONDS
        if waits:  # else the beginning of the report is word enough
            self._outbox.send(Reporting())
            self._listen()
            self._quiet.wait(HEARTBEAT_TIMEOUT_SECONDS)

    def is_quiet(self) -> None:
        self._quiet.set()


class Executor:
    """Idle, and while an attempt is short, its main thread listens to the supervisor.

    To an attempt that lasts, a second thread listens: see :meth:`_mind_what_lasts`. Were it always
    that one, each assignment would have to be handed from thread to thread.
    """

    def __init__(
        self,
        connection: Connection,
        whereabouts: SharedStep,
        runtime: Runtime,
        spool: Path | None,
    ) -> None:
        self._connection = connection
        self._whereabouts = whereabouts
        self._runtime = runtime
        self._spool = spool
        self._output = Output()
        self._outbox = Outbox(connection, _end_orphaned)
        self._journal: ExecutorJournal | None = None
        self._listening = threading.Lock()
        self._is_minded = False
        self._is_ready_for_spark = False
        self._has_begun = threading.Event()
        self._hurry = threading.Event()
        self._over, self._say_over = Pipe(duplex=False)
        self._lease = RenewedLease(self._outbox, self._hurry.set)

    def serve(self, tasks: tuple[ServedTask, ...]) -> None:
        threading.Thread(target=self._mind_what_lasts, daemon=True, name="supervisor-link").start()
        self._outbox.send(Ready(tasks))
        while True:
            assignment = self._next_assignment()
            self._lease.begin(assignment)
            outcome = self._recorded(assignment)
            report = outcome.report
            self._outbox.send(Finished(report.status, report.reason, outcome.accepted))

    def _recorded(self, assignment: Assignment) -> AttemptOutcome:
        record = AttemptLog(assignment.events_log, assignment.output_log, self._output, self._spool)
        journal = ExecutorJournal(assignment.execution, record, self._outbox, self._whereabouts)
        with self._minded(journal):
            outcome = self._run(assignment, record, replace(self._runtime, journal=journal))
        record.end()
        return outcome

    def _run(self, assignment: Assignment, record: AttemptLog, runtime: Runtime) -> AttemptOutcome:
        delivery = assignment.delivery
        try:
            record.begin()
            task = _found(assignment.module, delivery.attempt.task_name)
            self._get_ready_for(task)
        except (PeragoError, OSError) as error:  # no room for its logs, say
            runtime.journal.failure(error)
            return self._refuse(assignment, runtime, error)
        return run_attempt(
            delivery,
            contained(task, record.restore_output),
            runtime,
            lease=self._lease,
            execution=assignment.execution,
        )

    def _get_ready_for(self, task: AnyTask) -> None:
        """Start Spark beside a task that comes with others that need it: it takes a while."""
        if self._is_ready_for_spark or task.engine is None:
            return
        if task.engine != SPARK and _comes_with_spark(task.module):
            self._is_ready_for_spark = True
            self._runtime.engines[SPARK].load()
            threading.Thread(target=self._start_spark, daemon=True, name="spark-start").start()

    def _start_spark(self) -> None:
        with suppress(PeragoError):  # said again, and heard, when it is needed
            self._runtime.engines[SPARK].warm_up()

    def _refuse(
        self, assignment: Assignment, runtime: Runtime, error: PeragoError | OSError
    ) -> AttemptOutcome:
        report = failed(error)
        runtime.journal.started(AttemptStep.REPORT)
        self._lease.stop_heartbeats()
        receipt = hand_in(runtime, assignment.delivery, report, self._lease)
        accepted = receipt is not None and receipt.accepted
        return AttemptOutcome(assignment.execution.id, report, accepted)

    # --- listening to the supervisor --------------------------------------------------------------
    def _next_assignment(self) -> Assignment:
        with self._listening:
            while not isinstance(message := self._receive(), Assignment):
                self._heed(message)
            return message

    def _receive(self) -> ToExecutor:
        try:
            message: ToExecutor = self._connection.recv()
        except (EOFError, OSError):
            _end_orphaned()
        return message

    def _heed(self, message: ToExecutor) -> None:
        if isinstance(message, LeaseRenewed):
            self._lease.renew(message.at)
        elif isinstance(message, HeartbeatsStopped):
            self._lease.is_quiet()

    @contextmanager
    def _minded(self, journal: ExecutorJournal) -> Iterator[None]:
        self._journal = journal
        self._has_begun.set()
        try:
            yield
        finally:
            self._journal = None
            if self._is_minded:
                self._say_over.send_bytes(b".")

    def _mind_what_lasts(self) -> None:
        """In a thread of its own: look now and then whether there still is the same attempt.

        Asleep while there is none, so that the main thread needs to wake it for the first only.
        """
        while True:
            self._has_begun.wait()
            journal = self._journal
            self._hurry.wait(LASTING_SECONDS)
            self._hurry.clear()
            if journal is None:
                self._has_begun.clear()
                if self._journal is not None:  # it came in between
                    self._has_begun.set()
            elif journal is self._journal:
                journal.lasts()
                self._listen_during(journal)

    def _listen_during(self, journal: ExecutorJournal) -> None:
        with self._listening:
            self._is_minded = True
            while journal is self._journal:
                # That it is over is said before the supervisor hears of it: where both are ready,
                # the other thing is the next assignment, which isn't ours to take.
                if self._over in wait([self._connection, self._over]):
                    self._over.recv_bytes()  # or it was said of one before, a moment too late
                else:
                    self._heed(self._receive())
            self._is_minded = False


@functools.cache
def _found(module: str, name: str) -> AnyTask:
    return find_task(module, name)


@functools.cache
def _comes_with_spark(module: str) -> bool:
    return any(task.engine == SPARK for task in tasks_of(load_module(module)))


def _end_orphaned() -> NoReturn:
    """End this process and, where it leads a group of its own, every process of its tasks."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(ORPHANED_EXIT_CODE)


def load_tasks(modules: tuple[str, ...]) -> tuple[ServedTask, ...]:
    """Import what is to be served, so that no attempt's lease has to wait for it.

    Raises TaskDefinitionError, naming the module and the line.
    """
    from perago.wiring import task_definition

    tasks = by_name(task for module in modules for task in _tasks_of(module))
    return tuple(
        ServedTask(
            task.name,
            task.module,
            task.controls,
            uses_workspace=task.workspace is not None,
            uses_spark=task.engine == SPARK,
            definition=task_definition(task),
        )
        for task in tasks.values()
    )


def _tasks_of(target: str) -> list[AnyTask]:
    found = tasks_of(load_module(target))
    if not found:
        raise TaskDefinitionError(
            f"module {target!r} declares no task",
            fix="declare one with @task(…), or name the module that does",
        )
    return [find_task(task.module, task.name) for task in found]


def _leave_no_jobs(runtime: Runtime) -> None:
    """When told to end, have a Spark on another machine end its jobs first: it wouldn't notice."""

    def leave() -> None:
        runtime.engines[SPARK].stop()
        os._exit(128 + signal.SIGTERM)

    def begin_leaving(*_signal: object) -> None:
        # Not right here: this thread may be in the midst of talking to it.
        threading.Thread(target=leave, daemon=True).start()

    signal.signal(signal.SIGTERM, begin_leaving)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main() -> None:
    # The terminal's Ctrl-C is the supervisor's to handle: it knows whether we are publishing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection, whereabouts = Connection(int(sys.argv[1])), SharedStep(int(sys.argv[2]))
    employment: ExecutorConfig = connection.recv()
    try:
        tasks = load_tasks(employment.modules)
        patience = employment.store_patience_seconds
        runtime = replace(
            build_runtime(employment.settings, drivers=employment.executors, on_line=_tell),
            store_patience_seconds=patience,
        )
        if employment.settings.spark_remote is not None:
            _leave_no_jobs(runtime)
        if any(task.uses_workspace for task in tasks):
            preload(employment.settings)
        if any(task.uses_spark for task in tasks):
            runtime.engines[SPARK].warm_up()
    except PeragoError as error:
        connection.send([StartFailed(error)])
        return
    spool = employment.spool_of(os.getpid())
    Executor(connection, whereabouts, runtime, spool).serve(tasks)


if __name__ == "__main__":
    main()
