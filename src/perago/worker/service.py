"""The worker behind ``perago start``: serves Conductor until a signal stops it.

The supervisor is this process; the poller and each executor are processes of their own. Only
executors load users' modules.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from perago.errors import OrchestratorRefusedError, PeragoError, RuntimeConfigError
from perago.file_lock import owned
from perago.wiring import open_conductor, open_store, system_clock
from perago.worker.cleanup import Cleaner
from perago.worker.events import (
    Observers,
    OrchestratorReachable,
    OrchestratorUnreachable,
    ProblemFound,
)
from perago.worker.messages import ExecutorConfig
from perago.worker.poller_handle import PollerHandle
from perago.worker.signals import StopSignal
from perago.worker.slot import Slot
from perago.worker.supervisor import Supervisor, TaskTarget, WorkerPaths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from perago.model.attempt import Attempt
    from perago.settings import Settings
    from perago.worker.events import Observer, WorkerEvent
    from perago.worker.messages import ServedTask

STORE_PATIENCE_SECONDS = 3600.0
"""How long an attempt waits for lakeFS before it begins. Its lease is kept meanwhile."""

_TICK_SECONDS = 0.5
_LAST_ANSWER_SECONDS = 1.0
_GIVE_BACK_SECONDS = 5.0
_CLEANUP_SECONDS = 10.0
_OWNER_FILE = "supervisor.lock"


class Slots(NamedTuple):
    """How many attempts run at a time: at first, and once it is known that no task uses Spark."""

    first: int
    without_spark: int


class Service:
    """One worker on this machine. Its properties can be read from any thread.

    ``check_definitions`` yields an error for each of these task definitions that is not registered
    in Conductor as it is.
    """

    def __init__(
        self,
        settings: Settings,
        modules: Sequence[str],
        slots: Slots,
        observer: Observer,
        check_definitions: Callable[[Sequence[Mapping[str, object]]], Iterable[PeragoError]],
    ) -> None:
        self._settings = settings
        self._first_contact = _FirstContact()
        self._observer = Observers(self._first_contact, observer)
        self._check_definitions = check_definitions
        self._problems: SimpleQueue[PeragoError] = SimpleQueue()
        self._clock = system_clock()
        self._executor_config = ExecutorConfig(
            settings,
            tuple(modules),
            spools=True,
            store_patience_seconds=STORE_PATIENCE_SECONDS,
            executors=slots.first,
        )
        self._without_spark = slots.without_spark
        self._slots = self._new_slots(slots.first)
        self._tasks: dict[str, ServedTask] = {}
        self.worker_id = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.ticked_at = self._clock.monotonic()
        self.stopping = False

    def _new_slots(self, count: int) -> list[Slot]:
        return [Slot(self._executor_config, self._clock, self._observer) for _ in range(count)]

    @property
    def executors_ready(self) -> int:
        return sum(slot.is_ready for slot in self._slots)

    @property
    def executors_busy(self) -> int:
        return sum(slot.is_busy for slot in self._slots)

    def run(self) -> None:
        """Serve until a signal comes; return when all attempts are finished or given back.

        Raises RuntimeConfigError if another worker uses the same root, TaskDefinitionError if a
        module can't be loaded, and OrchestratorRefusedError if Conductor's first answer rejects
        our credentials.
        """
        root = self._settings.attempts
        with ExitStack() as stack:
            stack.enter_context(owned(root / _OWNER_FILE, lambda owner: _taken(root, owner)))
            stop_signal = stack.enter_context(StopSignal().watched())
            conductor = open_conductor(self._settings)
            link = PollerHandle(conductor, self._clock, worker_id=self.worker_id)
            stack.callback(link.close)
            cleaner = Cleaner(lambda: open_store(self._settings), root, self._settings.logs)
            self._settings.logs.mkdir(parents=True, exist_ok=True)
            cleaner.start()
            stack.callback(cleaner.stop, _CLEANUP_SECONDS)
            supervisor = Supervisor(
                link,
                self._slots,
                self._find_task,
                paths=WorkerPaths(
                    logs_of=self._logs_of,
                    clean_up=lambda: None,  # the cleaner does it: it can wait for the store
                    requests_outlive_us=True,
                    on=" --on conductor",
                ),
                clock=self._clock,
                observer=self._observer,
            )
            stack.callback(supervisor.stop)
            supervisor.start()
            self._serve_until(stop_signal, supervisor, link)
            self._finish(supervisor, stop_signal)

    # --- serving ----------------------------------------------------------------------------------
    def _serve_until(
        self, stop_signal: StopSignal, supervisor: Supervisor, link: PollerHandle
    ) -> None:
        while not stop_signal.came:
            self._tick(supervisor)
            if self._first_contact.refusal is not None:
                raise self._first_contact.refusal
            if not self._tasks and (ready := next((s for s in self._slots if s.is_ready), None)):
                self._begin(ready.tasks, link)

    def _tick(self, supervisor: Supervisor) -> None:
        try:
            supervisor.tick(_TICK_SECONDS)
        except PeragoError as error:
            if not self._tasks:  # the modules could never be loaded
                raise
            self._observer.observe(ProblemFound(error))
        while not self._problems.empty():  # observers are called in this thread alone
            self._observer.observe(ProblemFound(self._problems.get()))
        self.ticked_at = self._clock.monotonic()

    def _begin(self, tasks: tuple[ServedTask, ...], link: PollerHandle) -> None:
        if any(task.uses_workspace for task in tasks):
            _assert_lakefs(self._settings)
        self._tasks = {task.name: task for task in tasks}
        if not any(task.uses_spark for task in tasks):
            self._slots += self._new_slots(self._without_spark - len(self._slots))
        link.set_tasks(list(self._tasks))
        threading.Thread(target=self._check_registration, daemon=True, name="definitions").start()

    def _check_registration(self) -> None:
        """Report tasks that are not registered as declared. They are served all the same."""
        definitions = [task.definition for task in self._tasks.values()]
        try:
            for problem in self._check_definitions(definitions):
                self._problems.put(problem)
        except PeragoError:  # polling reports the same error
            return

    def _find_task(self, attempt: Attempt) -> TaskTarget:
        task = self._tasks.get(attempt.task_name)
        if task is None:  # its name differs from its type, which is what we poll for
            raise RuntimeConfigError(
                f"this worker serves no task {attempt.task_name!r}",
                fix="give the task the same name and type in the workflow definition",
            )
        return TaskTarget(task.module, task.controls)

    def _logs_of(self, attempt: Attempt) -> Path:
        return self._settings.logs / attempt.workflow_instance_id

    # --- stopping ---------------------------------------------------------------------------------
    def _finish(self, supervisor: Supervisor, stop_signal: StopSignal) -> None:
        """Let attempts finish within their grace; then, or at a second signal, give them back."""
        self.stopping = True
        supervisor.stop_taking_work(_LAST_ANSWER_SECONDS)
        grace = supervisor.grace_seconds
        while supervisor.is_busy and not stop_signal.is_due(grace):
            self._tick(supervisor)
        supervisor.leave()
        supervisor.settle(_GIVE_BACK_SECONDS)


class _FirstContact:
    """Notes whether the orchestrator's very first answer rejects us.

    Then our credentials are wrong, and polling on does not help. A rejection after good answers
    may be a short misconfiguration of the server.
    """

    def __init__(self) -> None:
        self._has_answered = False
        self.refusal: PeragoError | None = None

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case OrchestratorReachable():
                self._has_answered = True
            case OrchestratorUnreachable(OrchestratorRefusedError() as error) if (
                not self._has_answered
            ):
                self.refusal = error


def _assert_lakefs(settings: Settings) -> None:
    """Raises RuntimeConfigError, naming the missing setting, if lakeFS is not configured."""
    if settings.store != "lakefs":
        _ = settings.lakefs_login
        raise RuntimeConfigError(
            f"PERAGO_STORE={settings.store}: tasks that Conductor hands out have their workspaces "
            "in lakeFS",
            fix="unset PERAGO_STORE, or set PERAGO_STORE=lakefs",
        )


def _taken(root: Path, owner: str) -> RuntimeConfigError:
    return RuntimeConfigError(
        f"another worker, process {owner}, uses {root}",
        fix=f"stop it (kill {owner}), or give this one another root: PERAGO_WORKSPACE_ROOT=…",
    )
