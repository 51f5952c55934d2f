"""Several attempts, interleaved by the test: each stops at every failpoint until it is let go.

::

    with Schedule(bench) as schedule:
        zombie = schedule.deliver(task)
        zombie.run_to("publish.decided")
        ...                                # its lease runs out, a retry is delivered and finishes
        zombie.finish()                    # and now its request arrives

Every worker runs the real :func:`~perago.flow.lifecycle.run_attempt` in a thread of its own, and
exactly one thread runs at any time: the test's, or the one it waits for. So an interleaving is a
plain sequence of calls, and the same sequence always gives the same result.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from perago.errors import AnswerLostError
from perago.flow.lifecycle import run_attempt
from perago.model.attempt import Execution
from perago.model.workspace import MARKER_NAME
from perago.testing.bench import RecordingJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from perago.declare.task import AnyTask
    from perago.flow.runtime import RequestedLevel
    from perago.model.attempt import Attempt, Delivery
    from perago.model.commit import Commit
    from perago.model.outcome import AttemptOutcome
    from perago.ports.orchestrator import Orchestrator
    from perago.ports.store import Store
    from perago.testing.bench import Bench

_Answer = TypeVar("_Answer")

STUCK_SECONDS = 120.0
"""A step that takes longer hangs; the test then fails instead of hanging with it."""


class Crashed(BaseException):
    """Raised in a crashed worker's thread. Not an Exception: the dead don't handle errors."""


class Schedule:
    """The workers on one bench, and the ledger of what they did to its branch.

    A context manager: :meth:`close` ends every worker, also when the test failed.
    """

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.ledger = Ledger()
        self.workers: list[Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def deliver(self, task: AnyTask, *, fence: RequestedLevel = "auto") -> Worker:
        """Poll for the task and give it to a new worker, which hasn't begun yet.

        Raises LookupError if no delivery of it is due.
        """
        return self.begin(self.bench.poll(task), task, fence=fence)

    def deliver_again(
        self, first: Worker, task: AnyTask | None = None, *, worker_id: str = "worker-2"
    ) -> Worker:
        """Hand the same task id to a second worker while the first still works on it.

        ``task`` is for a second one whose body does something else. Raises LookupError if the
        attempt has ended, or the first worker's delivery isn't its last.
        """
        if not self.bench.queue.give_back(first.delivery):
            raise LookupError(f"{first.attempt} can't be taken from {first.execution.id}")
        delivery = self.bench.poll(first.task, worker_id=worker_id)
        return self.begin(delivery, task or first.task)

    def begin(self, delivery: Delivery, task: AnyTask, *, fence: RequestedLevel = "auto") -> Worker:
        """Give a delivery to a new worker, which hasn't begun yet."""
        worker = Worker(self.bench, self.ledger, delivery, task, fence)
        self.workers.append(worker)
        return worker

    def write(self, files: Mapping[str, bytes | str | None]) -> str:
        """Commit files outside of the protocol; returns the new head's id."""
        before = self.bench.head
        after = self.bench.write(files)
        self.ledger.entries.append(Movement(before, after, None))
        return after

    @property
    def running(self) -> list[Worker]:
        """Workers that have neither ended nor crashed, the longest there first."""
        return [worker for worker in self.workers if not worker.ended]

    def close(self) -> None:
        """Crash whatever still runs. Afterwards no thread of this schedule is left."""
        for worker in self.running:
            worker.crash()


class Worker:
    """One execution of one delivery. ``at`` is the failpoint it stands at, None outside of any."""

    def __init__(
        self,
        bench: Bench,
        ledger: Ledger,
        delivery: Delivery,
        task: AnyTask,
        fence: RequestedLevel,
    ) -> None:
        self.delivery = delivery
        self.task = task
        self.execution = Execution.begin(delivery.attempt)
        self.journal = RecordingJournal()
        self.at: str | None = None
        self.passed: list[str] = []
        self.ended = False
        self.crashed = False
        self.outcome: AttemptOutcome | None = None
        self._ledger = ledger
        self._marker = bench.attempts / self.execution.directory_name / MARKER_NAME
        self._runtime = bench.runtime(
            journal=self.journal,
            failpoints=self,
            fence=fence,
            store=cast("Store", _WatchedStore(bench, self, ledger)),
            orchestrator=cast("Orchestrator", _Mortal(bench.queue, self)),
        )
        self._go = threading.Semaphore(0)
        self._stopped = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._live, daemon=True)
        self._error: BaseException | None = None
        self._lost_answer: bool | None = None
        ledger.tasks[delivery.attempt.task_id] = task
        ledger.deliveries[self.execution.id] = delivery

    @property
    def attempt(self) -> Attempt:
        return self.delivery.attempt

    # --- what a test does to it -----------------------------------------------------------------
    def advance(self) -> str | None:
        """Let it go on to its next failpoint, whose name is returned; None if it ended instead."""
        if self.ended:
            raise RuntimeError(f"worker {self.execution.id} has ended: it can't go on")
        self._let_go()
        if self._error is not None:
            raise self._error
        return self.at

    def run_to(self, name: str) -> None:
        """Let it go on to that failpoint. Raises AssertionError if it never gets there."""
        while self.at != name:
            if self.advance() is None:
                raise AssertionError(
                    f"the attempt ended ({self.outcome}) without reaching {name}: {self.passed}"
                )

    def finish(self) -> AttemptOutcome:
        """Let it go on to its end."""
        while not self.ended:
            self.advance()
        if self.outcome is None:
            raise RuntimeError(f"worker {self.execution.id} crashed: it has no outcome")
        return self.outcome

    def crash(self) -> None:
        """Kill it where it stands. It does nothing more, and its locks are free."""
        if self.ended:
            return
        self.crashed = True
        if self._thread.ident is not None:
            self._let_go()
        self.ended = True
        _close_descriptors_of(self._marker)

    def lose_answer(self, *, applied: bool) -> None:
        """Lose the answer to its next branch update; the request arrives first, if ``applied``."""
        self._lost_answer = applied

    # --- what happens in its own thread ---------------------------------------------------------
    def hit(self, name: str) -> None:
        """The attempt's failpoints lead here."""
        self.passed.append(name)
        self.at = name
        self._stopped.release()
        self._go.acquire()
        self.assert_alive()

    def assert_alive(self) -> None:
        """Raises Crashed."""
        if self.crashed:
            raise Crashed(self.execution.id)

    def take_lost_answer(self) -> bool | None:
        """What :meth:`lose_answer` asked for, once; None if the answer is to arrive."""
        lost, self._lost_answer = self._lost_answer, None
        return lost

    def _let_go(self) -> None:
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go.release()
        if not self._stopped.acquire(timeout=STUCK_SECONDS):
            raise AssertionError(f"the attempt hangs after {self.at}")
        if self.ended:
            self._thread.join()

    def _live(self) -> None:
        try:
            self.outcome = run_attempt(
                self.delivery, self.task, self._runtime, execution=self.execution
            )
            self._ledger.outcomes[self.execution.id] = self.outcome
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self._error = error
        finally:
            self.at = None
            self.ended = True
            self._stopped.release()


class _Mortal:
    """Passes calls on while its worker lives; afterwards nothing gets through."""

    def __init__(self, target: object, worker: Worker) -> None:
        self._target = target
        self._worker = worker

    def __getattr__(self, name: str) -> Callable[..., Any]:
        member = getattr(self._target, name)

        def call(*arguments: Any, **options: Any) -> Any:
            self._worker.assert_alive()
            return member(*arguments, **options)

        return call


class _WatchedStore(_Mortal):
    """A worker's view of the store: what it sees of the branch and does to it is written down."""

    def __init__(self, bench: Bench, worker: Worker, ledger: Ledger) -> None:
        super().__init__(bench.store, worker)
        self._bench = bench
        self._entries = ledger.entries

    def head(self, repository: str, branch: str) -> Commit:
        self._worker.assert_alive()
        found = self._bench.store.head(repository, branch)
        self._entries.append(Sighting(found.id, self._worker.execution))
        return found

    def merge(self, *arguments: Any, **options: Any) -> Commit:
        return self._move(lambda: self._bench.store.merge(*arguments, **options))

    def relocate(self, *arguments: Any, **options: Any) -> None:
        self._move(lambda: self._bench.store.relocate(*arguments, **options))

    def _move(self, send: Callable[[], _Answer]) -> _Answer:
        self._worker.assert_alive()
        lost = self._worker.take_lost_answer()
        if lost is False:
            raise AnswerLostError("the connection broke: the request was lost")
        before = self._bench.head
        answer = send()
        self._entries.append(Movement(before, self._bench.head, self._worker.execution))
        if lost:
            raise AnswerLostError("the connection broke: the answer was lost")
        return answer


def _close_descriptors_of(path: Path) -> None:
    """What the kernel does for a process that dies: let go of its open files, and their locks."""
    try:
        wanted = path.stat()
    except FileNotFoundError:
        return
    for descriptor in [int(entry.name) for entry in Path("/dev/fd").iterdir()]:
        try:
            found = os.fstat(descriptor)
        except OSError:  # the listing's own descriptor
            continue
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            os.close(descriptor)


# --- what happened to the branch, in order --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Movement:
    """The branch moved. ``execution`` is None if it was moved outside of the protocol."""

    before: str
    after: str
    execution: Execution | None


@dataclass(frozen=True, slots=True)
class Sighting:
    """An execution read the branch's head."""

    head: str
    execution: Execution


@dataclass(slots=True)
class Ledger:
    """Everything worth judging afterwards. ``tasks`` are by task id, the others by execution id.

    Executions that crashed have no outcome.
    """

    tasks: dict[str, AnyTask] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    entries: list[Movement | Sighting] = field(default_factory=list)
    outcomes: dict[str, AttemptOutcome] = field(default_factory=dict)

    @property
    def movements(self) -> list[Movement]:
        return [entry for entry in self.entries if isinstance(entry, Movement)]

    def may_write(self, task_id: str) -> bool:
        """Whether this is a task of the schedule that publishes what it changes."""
        task = self.tasks.get(task_id)
        return bool(task and task.workspace and not task.workspace.read_only)

    def moved_by(self, execution_id: str) -> list[Movement]:
        """How one execution moved the branch; a move to where it was already doesn't count."""
        return [
            movement
            for movement in self.movements
            if movement.execution is not None
            and movement.execution.id == execution_id
            and movement.before != movement.after
        ]

    def published_by(self, task_id: str, input_ref: str) -> list[str]:
        """What all executions of this task id put on the branch; going back to A isn't that."""
        return [
            movement.after
            for movement in self.movements
            if movement.execution is not None
            and movement.execution.attempt.task_id == task_id
            and movement.after not in (movement.before, input_ref)
        ]

    def heads_of(self, task_id: str) -> set[str]:
        """Every head that an execution of this task id put in place or read."""
        return {
            entry.after if isinstance(entry, Movement) else entry.head
            for entry in self.entries
            if entry.execution is not None and entry.execution.attempt.task_id == task_id
        }
