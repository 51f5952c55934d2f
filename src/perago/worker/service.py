"""``perago start``: serves a real orchestrator until it is told to stop.

One supervisor (this process), one poller, and executors, each a process of its own. Users' modules
are loaded by the executors alone.
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
from perago.worker.supervisor import Served, Supervisor, WorkerPaths

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
_GIVING_BACK_SECONDS = 5.0
_CLEARING_SECONDS = 10.0
_OWNER = "supervisor.lock"


class Slots(NamedTuple):
    """How many attempts to run at a time; more may fit if none of the tasks needs Spark."""

    first: int
    without_spark: int


class Service:
    """One worker on this machine. What it is at can be asked from any thread.

    ``troubles_with`` tells which of some task definitions aren't registered as they are.
    """

    def __init__(
        self,
        settings: Settings,
        modules: Sequence[str],
        slots: Slots,
        watcher: Observer,
        troubles_with: Callable[[Sequence[Mapping[str, object]]], Iterable[PeragoError]],
    ) -> None:
        self._settings = settings
        self._entrance = _FirstContact()
        self._watcher = watcher = Observers(self._entrance, watcher)
        self._troubles_with = troubles_with
        self._troubles: SimpleQueue[PeragoError] = SimpleQueue()
        self._clock = system_clock()
        self._employment = ExecutorConfig(
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
        self.turned_at = self._clock.monotonic()
        self.stopping = False

    def _new_slots(self, count: int) -> list[Slot]:
        return [Slot(self._employment, self._clock, self._watcher) for _ in range(count)]

    @property
    def executors_ready(self) -> int:
        return sum(slot.is_ready for slot in self._slots)

    @property
    def executors_busy(self) -> int:
        return sum(slot.work is not None for slot in self._slots)

    def run(self) -> None:
        """Serve until a signal says stop; returns when everything is settled.

        Raises RuntimeConfigError if another supervisor works in the same root, TaskDefinitionError
        if a module can't be loaded, and OrchestratorRefusedError if Conductor doesn't let us in
        when it is first asked.
        """
        root = self._settings.attempts
        with ExitStack() as stack:
            stack.enter_context(owned(root / _OWNER, lambda owner: _taken(root, owner)))
            interruption = stack.enter_context(StopSignal().watched())
            desk = PollerHandle(
                open_conductor(self._settings), self._clock, worker_id=self.worker_id
            )
            stack.callback(desk.close)
            janitor = Cleaner(lambda: open_store(self._settings), root, self._settings.logs)
            self._settings.logs.mkdir(parents=True, exist_ok=True)
            janitor.start()
            stack.callback(janitor.stop, _CLEARING_SECONDS)
            supervisor = Supervisor(
                desk,
                self._slots,
                self._served,
                paths=WorkerPaths(
                    logs=self._logs_of,
                    clear=lambda: None,  # the janitor's, who can wait for a store that is away
                    requests_outlive_us=True,
                    on=" --on conductor",
                ),
                clock=self._clock,
                watcher=self._watcher,
            )
            stack.callback(supervisor.stop)
            supervisor.start()
            self._serve_until(supervisor, desk, interruption)
            self._finish(supervisor, interruption)

    # --- serving ----------------------------------------------------------------------------------
    def _serve_until(
        self, supervisor: Supervisor, desk: PollerHandle, interruption: StopSignal
    ) -> None:
        while not interruption.came:
            self._tick(supervisor)
            if self._entrance.refusal is not None:
                raise self._entrance.refusal
            if not self._tasks and (ready := next((s for s in self._slots if s.is_ready), None)):
                self._begin(ready.tasks, desk)

    def _tick(self, supervisor: Supervisor) -> None:
        try:
            supervisor.tick(_TICK_SECONDS)
        except PeragoError as error:
            if not self._tasks:  # what can't be loaded now was never served
                raise
            self._watcher.observe(ProblemFound(error))
        while not self._troubles.empty():  # watchers are told things in this thread alone
            self._watcher.observe(ProblemFound(self._troubles.get()))
        self.turned_at = self._clock.monotonic()

    def _begin(self, tasks: tuple[ServedTask, ...], desk: PollerHandle) -> None:
        if any(task.uses_workspace for task in tasks):
            _assert_lakefs(self._settings)
        self._tasks = {task.name: task for task in tasks}
        if not any(task.uses_spark for task in tasks):
            self._slots += self._new_slots(self._without_spark - len(self._slots))
        desk.serve(list(self._tasks))
        threading.Thread(target=self._check_registration, daemon=True, name="definitions").start()

    def _check_registration(self) -> None:
        """A task that isn't registered as declared is served all the same, but not silently."""
        definitions = [task.definition for task in self._tasks.values()]
        try:
            for trouble in self._troubles_with(definitions):
                self._troubles.put(trouble)
        except PeragoError:  # it says so itself when it is asked for work
            return

    def _served(self, attempt: Attempt) -> Served:
        task = self._tasks.get(attempt.task_name)
        if task is None:  # asked for under another name, which is its type in the workflow
            raise RuntimeConfigError(
                f"this worker serves no task {attempt.task_name!r}",
                fix="give the task the same name and type in the workflow definition",
            )
        return Served(task.module, task.controls)

    def _logs_of(self, attempt: Attempt) -> Path:
        return self._settings.logs / attempt.workflow_instance_id

    # --- stopping ---------------------------------------------------------------------------------
    def _finish(self, supervisor: Supervisor, interruption: StopSignal) -> None:
        """Finish what runs within its grace; then, or at a second signal, give back the rest."""
        self.stopping = True
        supervisor.take_no_more(_LAST_ANSWER_SECONDS)
        grace = supervisor.grace_seconds
        while supervisor.busy and not interruption.is_due(grace):
            self._tick(supervisor)
        supervisor.leave()
        supervisor.settle(_GIVING_BACK_SECONDS)


class _FirstContact:
    """Notes whether the very first thing the orchestrator says is a no.

    One that lets nobody in will hardly change its mind; one that did before may have been
    misconfigured for a moment, and is asked on.
    """

    def __init__(self) -> None:
        self._heard = False
        self.refusal: PeragoError | None = None

    def observe(self, event: WorkerEvent) -> None:
        match event:
            case OrchestratorReachable():
                self._heard = True
            case OrchestratorUnreachable(OrchestratorRefusedError() as error) if not self._heard:
                self.refusal = error
            case _:
                pass


def _assert_lakefs(settings: Settings) -> None:
    """Raises RuntimeConfigError, naming what isn't set, where workspaces can't live in lakeFS."""
    if settings.store != "lakefs":
        _ = settings.lakefs_login
        raise RuntimeConfigError(
            f"PERAGO_STORE={settings.store}: tasks that Conductor hands out have their workspaces "
            "in lakeFS",
            fix="leave it unset, or set PERAGO_STORE=lakefs",
        )


def _taken(root: Path, owner: str) -> RuntimeConfigError:
    return RuntimeConfigError(
        f"another supervisor, process {owner}, works in {root}",
        fix="stop it, or give this one a root of its own: PERAGO_WORKSPACE_ROOT",
    )
