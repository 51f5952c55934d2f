"""An executor: a process of its own that runs attempts one after another.

Started by a supervisor as ``python -m perago.worker.executor FD``. A task's code runs in its main
thread, so a crash, a hang or an exhausted memory ends this process and nothing else. When its
supervisor is gone it ends itself: nobody would keep its lease alive.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import TYPE_CHECKING, NoReturn

from perago.declare.loading import find_task
from perago.errors import PeragoError
from perago.flow.lifecycle import run_attempt
from perago.flow.report import failed, hand_in
from perago.model.outcome import AttemptOutcome
from perago.wiring import build_runtime
from perago.worker.containment import contained, send_output_to
from perago.worker.journal import ExecutorJournal
from perago.worker.messages import Assignment, Finished, LeaseRenewed, Ready

if TYPE_CHECKING:
    from perago.flow.runtime import Runtime
    from perago.settings import Settings
    from perago.worker.messages import FromExecutor

ORPHANED_EXIT_CODE = 75


class RenewedLease:
    """A lease that a supervisor in another process keeps alive, on the machine's one clock."""

    def __init__(self) -> None:
        self._response_seconds = 0.0
        self._renewed_at = 0.0

    def begin(self, response_seconds: float, at: float) -> None:
        self._response_seconds, self._renewed_at = response_seconds, at

    def renew(self, at: float) -> None:
        self._renewed_at = max(self._renewed_at, at)

    def remaining(self) -> float:
        if not self._response_seconds:
            return float("inf")
        return self._renewed_at + self._response_seconds - time.monotonic()


class Executor:
    def __init__(self, connection: Connection, runtime: Runtime) -> None:
        self._connection = connection
        self._runtime = runtime
        self._sending = threading.Lock()
        self._assignments: SimpleQueue[Assignment] = SimpleQueue()
        self._lease = RenewedLease()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True, name="supervisor-link").start()
        self._tell(Ready())
        while True:
            assignment = self._assignments.get()
            self._lease.begin(assignment.delivery.response_seconds, assignment.leased_at)
            send_output_to(assignment.output_log)
            self._tell(Finished(self._run(assignment)))

    def _run(self, assignment: Assignment) -> AttemptOutcome:
        delivery, execution = assignment.delivery, assignment.execution
        journal = ExecutorJournal(
            execution, assignment.events_log, assignment.output_log, self._tell
        )
        runtime = replace(self._runtime, journal=journal)
        try:
            task = find_task(assignment.module, delivery.attempt.task_name)
        except PeragoError as error:
            journal.failure(error)
            return self._refuse(assignment, runtime, error)
        return run_attempt(
            delivery,
            contained(task, assignment.output_log),
            runtime,
            lease=self._lease,
            execution=execution,
        )

    def _refuse(
        self, assignment: Assignment, runtime: Runtime, error: PeragoError
    ) -> AttemptOutcome:
        report = failed(error)
        receipt = hand_in(runtime, assignment.delivery.attempt, report, self._lease)
        accepted = receipt is not None and receipt.accepted
        return AttemptOutcome(assignment.execution.id, report, accepted)

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                _end_orphaned()
            if isinstance(message, Assignment):
                self._assignments.put(message)
            elif isinstance(message, LeaseRenewed):
                self._lease.renew(message.at)

    def _tell(self, message: FromExecutor) -> None:
        with self._sending:
            try:
                self._connection.send(message)
            except (BrokenPipeError, ConnectionResetError):
                _end_orphaned()


def _end_orphaned() -> NoReturn:
    """End this process and, where it leads a group of its own, every process of its tasks."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(ORPHANED_EXIT_CODE)


def main() -> None:
    # The terminal's Ctrl-C is the supervisor's to handle: it knows whether we are publishing.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection = Connection(int(sys.argv[1]))
    settings: Settings = connection.recv()
    Executor(connection, build_runtime(settings)).serve()


if __name__ == "__main__":
    main()
