"""An executor: a process that runs attempts one after another.

Started by a supervisor as ``python -m perago.worker.executor SOCKET MEMORY``. A task's code runs in
its main thread, so a crash, a hang or exhausted memory ends this process and no other. If its
supervisor dies it ends itself, because its lease is no longer renewed.
"""

from __future__ import annotations

import copy
import functools
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NoReturn

from perago.declare.loading import find_task, load_module, tasks_of
from perago.declare.signature import SPARK
from perago.declare.task import by_name
from perago.errors import PeragoError, TaskDefinitionError, TaskFailed
from perago.flow.lifecycle import run_attempt
from perago.flow.report import failed, hand_in
from perago.model.attempt import AttemptStep
from perago.model.outcome import AttemptOutcome
from perago.wiring import build_runtime, preload
from perago.worker.attempt_log import AttemptLog, ExecutorJournal, Outbox, OutputStreams
from perago.worker.messages import (
    Assignment,
    ConnectionWaiter,
    Finished,
    HeartbeatsStopped,
    LeaseRenewed,
    Ready,
    ReportPending,
    ServedTask,
    SharedStep,
    StartFailed,
)
from perago.worker.signals import ignore_ctrl_c

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from perago.declare.task import AnyTask
    from perago.flow.runtime import Runtime
    from perago.worker.messages import ExecutorConfig, ToExecutor

ORPHANED_EXIT_CODE = 75

HEARTBEAT_TIMEOUT_SECONDS = 40.0
"""Longer than any heartbeat can take: its few requests have time-outs."""

LASTING_SECONDS = 0.25
"""An attempt that takes longer is logged, and the supervisor gets its steps as they happen."""

_SOON_SECONDS = 2.0


def main() -> None:
    ignore_ctrl_c()  # the supervisor handles it: it knows whether the attempt publishes
    connection, shared_step = Connection(int(sys.argv[1])), SharedStep(int(sys.argv[2]))
    config: ExecutorConfig = connection.recv()
    try:
        tasks = load_tasks(config.modules)
        runtime = replace(
            build_runtime(config.settings, drivers=config.executors, on_line=_print_error),
            store_patience_seconds=config.store_patience_seconds,
        )
        if config.settings.spark_remote is not None:
            _stop_spark_on_sigterm(runtime)
        if any(task.uses_workspace for task in tasks):
            preload(config.settings)
        if any(task.uses_spark for task in tasks):
            runtime.engines[SPARK].warm_up()
    except PeragoError as error:
        connection.send([StartFailed(error)])
        return
    Executor(connection, shared_step, runtime, config.spool_of(os.getpid())).serve(tasks)


def load_tasks(modules: tuple[str, ...]) -> tuple[ServedTask, ...]:
    """Import the modules, so that no attempt's lease is spent on that.

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


def _stop_spark_on_sigterm(runtime: Runtime) -> None:
    """On SIGTERM, end our jobs on a remote Spark first: it would not notice our end."""

    def stop() -> None:
        runtime.engines[SPARK].stop()
        os._exit(128 + signal.SIGTERM)

    def start_stopping(*_signal: object) -> None:
        # In another thread: this one may be in the middle of a call to Spark.
        threading.Thread(target=stop, daemon=True).start()

    signal.signal(signal.SIGTERM, start_stopping)


def _print_error(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class Executor:
    """Runs attempts in the main thread. A second thread receives the supervisor's messages."""

    def __init__(
        self,
        connection: Connection,
        shared_step: SharedStep,
        runtime: Runtime,
        spool: Path | None,
    ) -> None:
        self._shared_step = shared_step
        self._runtime = runtime
        self._spool = spool
        self._output = OutputStreams()
        self._outbox = Outbox(connection, _exit_orphaned)
        self._lease = RenewedLease(self._outbox)
        self._listener = _Listener(connection, self._lease)
        self._has_started_spark = False

    def serve(self, tasks: tuple[ServedTask, ...]) -> None:
        self._listener.start()
        self._outbox.send(Ready(tasks))
        while True:
            assignment = self._listener.next_assignment()
            outcome = self._run(assignment)
            report = outcome.report
            self._outbox.send(Finished(report.status, report.reason, outcome.accepted))

    def _run(self, assignment: Assignment) -> AttemptOutcome:
        log = AttemptLog(assignment.events_log, assignment.output_log, self._output, self._spool)
        journal = ExecutorJournal(assignment.execution, log, self._outbox, self._shared_step)
        self._listener.attempt_began(journal)
        try:
            outcome = self._run_logged(assignment, log, replace(self._runtime, journal=journal))
        finally:
            self._listener.attempt_ended()
        log.end()
        return outcome

    def _run_logged(
        self, assignment: Assignment, log: AttemptLog, runtime: Runtime
    ) -> AttemptOutcome:
        delivery = assignment.delivery
        try:
            log.begin()
            task = _find_task(assignment.module, delivery.attempt.task_name)
            self._start_spark_beside(task)
        except (PeragoError, OSError) as error:  # no room for its logs, for example
            runtime.journal.failure(error)
            return self._report_failure(assignment, runtime, error)
        return run_attempt(
            delivery,
            isolated(task, log.restore_output),
            runtime,
            lease=self._lease,
            execution=assignment.execution,
        )

    def _report_failure(
        self, assignment: Assignment, runtime: Runtime, error: PeragoError | OSError
    ) -> AttemptOutcome:
        report = failed(error)
        runtime.journal.started(AttemptStep.REPORT)
        self._lease.stop_heartbeats()
        receipt = hand_in(runtime, assignment.delivery, report, self._lease)
        accepted = receipt is not None and receipt.accepted
        return AttemptOutcome(assignment.execution.id, report, accepted)

    def _start_spark_beside(self, task: AnyTask) -> None:
        """Start Spark, which is slow, during a task that comes before the ones that need it."""
        if self._has_started_spark or task.engine is None:
            return
        if task.engine != SPARK and _has_spark_tasks(task.module):
            self._has_started_spark = True
            self._runtime.engines[SPARK].load()
            threading.Thread(target=self._start_spark, daemon=True, name="spark-start").start()

    def _start_spark(self) -> None:
        with suppress(PeragoError):  # raised again for the task that needs it
            self._runtime.engines[SPARK].warm_up()


class RenewedLease:
    """Implements :class:`perago.ports.environment.Lease`: the supervisor renews it.

    Both processes use the machine's one monotonic clock.
    """

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._supervisor = os.getppid()
        self._response_seconds = 0.0
        self._heartbeat_seconds = 0.0
        self._renewed_at = 0.0
        self._stopped = threading.Event()

    def begin(self, assignment: Assignment) -> None:
        self._response_seconds = assignment.delivery.response_seconds
        self._heartbeat_seconds = assignment.heartbeat_seconds
        self._renewed_at = assignment.leased_at
        self._stopped.clear()

    def renew(self, at: float) -> None:
        self._renewed_at = max(self._renewed_at, at)

    def heartbeats_stopped(self) -> None:
        self._stopped.set()

    def remaining(self) -> float:
        if not self._response_seconds:
            return float("inf")
        return self._renewed_at + self._response_seconds - time.monotonic()

    def stop_heartbeats(self) -> None:
        """Wait until none is in flight, at most as long as one may take.

        If none can be, do not wait: the step ``report``, which has begun, ends the renewals.
        """
        if os.getppid() != self._supervisor:  # the lease may have run out since
            _exit_orphaned()
        if time.monotonic() - self._renewed_at > self._heartbeat_seconds - _SOON_SECONDS:
            self._outbox.send(ReportPending())
            self._stopped.wait(HEARTBEAT_TIMEOUT_SECONDS)


class _Listener:
    """Receives the supervisor's messages, and notices an attempt that is not short."""

    def __init__(self, connection: Connection, lease: RenewedLease) -> None:
        self._connection = connection
        self._lease = lease
        self._assignments: SimpleQueue[Assignment] = SimpleQueue()
        self._lock = threading.Lock()
        self._journal: ExecutorJournal | None = None
        self._may_be_short = False

    def start(self) -> None:
        threading.Thread(target=self._listen, daemon=True, name="supervisor-link").start()

    def next_assignment(self) -> Assignment:
        return self._assignments.get()

    def attempt_began(self, journal: ExecutorJournal) -> None:
        self._journal = journal

    def attempt_ended(self) -> None:
        with self._lock:
            self._journal, self._may_be_short = None, False

    def _listen(self) -> None:
        waiter = ConnectionWaiter()
        while True:
            seconds = LASTING_SECONDS if self._may_be_short else None
            if waiter.wait([self._connection], seconds):
                self._handle(self._receive())
            else:
                self._note_lasting()

    def _note_lasting(self) -> None:
        with self._lock:  # or the journal could be of an attempt that has just ended
            if self._journal is not None:
                self._may_be_short = False
                self._journal.lasts()

    def _receive(self) -> ToExecutor:
        try:
            message: ToExecutor = self._connection.recv()
        except (EOFError, OSError):
            _exit_orphaned()
        return message

    def _handle(self, message: ToExecutor) -> None:
        match message:
            case Assignment():
                self._may_be_short = True
                self._lease.begin(message)  # here, so that a renewal right behind it counts
                self._assignments.put(message)
            case LeaseRenewed(_, at):
                self._lease.renew(at)
            case HeartbeatsStopped():
                self._lease.heartbeats_stopped()


def isolated(task: AnyTask, restore_output: Callable[[], None]) -> AnyTask:
    """The same task with a body that leaves the process as it was, however it ends.

    It restores the working directory, the environment and the output streams. A child that the
    body forked exits where the body ends: it must not publish a second time. A KeyboardInterrupt
    is the body's own failure, because no Ctrl-C reaches this process.
    """
    body = task.body

    @functools.wraps(body)
    def run(*arguments: object) -> Any:
        process, directory, environment = os.getpid(), os.getcwd(), dict(os.environ)  # noqa: PTH109
        try:
            return body(*arguments)
        except KeyboardInterrupt as error:
            raise TaskFailed("the task body raised KeyboardInterrupt") from error
        finally:
            if os.getpid() != process:
                os._exit(0)
            restore_output()
            os.chdir(directory)
            if os.environ != environment:
                os.environ.clear()
                os.environ.update(environment)

    isolated_task = copy.copy(task)
    isolated_task.body = run
    return isolated_task


@functools.cache
def _find_task(module: str, name: str) -> AnyTask:
    return find_task(module, name)


@functools.cache
def _has_spark_tasks(module: str) -> bool:
    return any(task.engine == SPARK for task in tasks_of(load_module(module)))


def _exit_orphaned() -> NoReturn:
    """End this process and, if it leads a process group, every process of its tasks."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(ORPHANED_EXIT_CODE)


if __name__ == "__main__":
    main()
