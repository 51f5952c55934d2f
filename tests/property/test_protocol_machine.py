"""The publication protocol against a small model: any order of workers, deaths, time-outs, rivals.

Real attempts run on the embedded store and queue, interleaved at their failpoints. The model is
the branch as a stack of commits, with the few moves an attempt may make on it.
"""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pydantic import BaseModel
from support.invariants import AT_THE_END, ATOMIC_STORE, EVERY_STORE, accepted_publications
from support.schedule import Schedule

from perago import TaskFailed, TaskTerminalError, WorkspaceSpec, task
from perago.flow.attempt_directory import collect, leftovers
from perago.model.attempt import TaskStatus
from perago.model.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.testing import Bench

LEASE, RETRY_DELAY = 60, 10
CONTROLS = TaskControls(
    retry=RetryPolicy(count=5, delay_seconds=RETRY_DELAY),
    timeout=TimeoutPolicy(response_seconds=LEASE),
)
MEMORY = Path("/dev/shm")  # noqa: S108 - a directory of our own is made below it
SCRATCH = MEMORY if MEMORY.is_dir() else None
INTERRUPTIONS = 3  # by people; more of them only stop every run from getting anywhere
WINDOWS = (
    "fence1.passed",
    "fence2.passed",
    "publish.head_read",
    "publish.decided",
    "publish.cleared",
    "publish.sent",
    "report.ready",
    "the end",
)

serial_numbers = itertools.count()
NOT_BEGUN = None
places = st.sampled_from([NOT_BEGUN, *WINDOWS, "publish.decided", "the end", "the end"])
unended = st.sampled_from([NOT_BEGUN, *WINDOWS[:-1]])
worker_ids = st.sampled_from(["worker-1", "worker-2"])
picks = st.integers(min_value=0, max_value=10**6)


class Params(BaseModel):
    pass


class Result(BaseModel):
    pass


# --- what a body may do: twins of one delivery may do different things ---------------------------


def count_up(ws, step):
    """Deterministic, as tasks should be: every execution on one input leaves the same bytes."""
    counter = ws / f"{step}.count"
    counter.write_text(str(int(counter.read_text()) + 1 if counter.exists() else 0))


def write_own_file(ws, step):
    (ws / f"{step}.{next(serial_numbers)}").write_text(step)


def write_shared_file(ws, step):
    (ws / "shared").write_text(f"{step} {next(serial_numbers)}")


def write_nothing(ws, step):
    pass


def fail(ws, step):
    raise TaskFailed("no luck")


def give_up(ws, step):
    raise TaskTerminalError("no use")


WRITING = (count_up, write_own_file, write_shared_file)
ENDING_WELL = (*WRITING, write_nothing)


def declare(step, act):
    def body(ws: Path, params: Params) -> Result:
        act(ws, step)
        return Result()

    return task(
        name=step, owner_email="data@example.com", workspace=WorkspaceSpec(), controls=CONTROLS
    )(body)


STEPS = ("one", "two", "three")
TASKS = {(step, act): declare(step, act) for step in STEPS for act in (*ENDING_WELL, fail, give_up)}
PIPELINE = [TASKS[step, count_up] for step in STEPS]
# What moves the branch is what there is to test: failures only make way for the next attempt.
acts = st.sampled_from([*ENDING_WELL * 4, fail, give_up])


class BranchModel:
    """The branch as a stack of commits, and who put each there.

    Standing on its input A, an attempt may push one commit onto A, put one in the place of the
    only commit on top of A, or take that one away. No attempt takes away an accepted commit.
    """

    def __init__(self, root):
        self.stack = [root]
        self.author = {}

    def apply(self, movement, input_ref, accepted):
        assert movement.before == self.stack[-1]
        if movement.execution is None:
            self.stack.append(movement.after)
            return
        assert input_ref in self.stack[-2:], "it moved a branch that isn't where it started"
        if self.stack[-1] != input_ref:
            replaced = self.stack.pop()
            assert replaced not in accepted, "it took away what was accepted"
            assert self.author.get(replaced) != movement.execution.attempt, "it replaced its twin"
        if movement.after != input_ref:
            self.stack.append(movement.after)
            self.author[movement.after] = movement.execution.attempt

    def lets_publish(self, attempt, input_ref):
        """Whether an attempt that is current and alone may publish."""
        return input_ref in self.stack[-2:] and not self.is_headed_by_a_twin(attempt, input_ref)

    def is_headed_by_a_twin(self, attempt, input_ref):
        """Whether another execution of this very attempt put the head there."""
        return self.stack[-1] != input_ref and self.author.get(self.stack[-1]) == attempt


class AtomicStoreMachine(RuleBasedStateMachine):
    """Everything is promised, whatever overlaps with whatever."""

    semantics = "atomic"
    serial = False

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(dir=SCRATCH)
        self.bench = Bench(Path(self.directory.name), semantics=self.semantics)
        self.schedule = Schedule(self.bench)
        self.model = BranchModel(self.bench.head)
        self.modelled = 0
        self.acts = {}
        self.run_id = None
        self.interruptions = 0
        self.overlapped = False

    def teardown(self):
        try:
            for worker in self.schedule.running:
                self.go_to(worker, "the end")
                self.promises_hold()
                self.the_branch_is_as_modelled()
            self.collect_leftovers()
            for holds in AT_THE_END:
                holds(self.schedule)
        finally:
            self.schedule.close()
            self.bench.close()
            self.directory.cleanup()

    # --- people ------------------------------------------------------------------------------

    @initialize(length=st.integers(min_value=2, max_value=3))
    def start_the_first_run(self, length):
        self.run_id = self.bench.start(*PIPELINE[:length])

    @precondition(lambda self: not self.active or self.interruptions < INTERRUPTIONS)
    @rule(length=st.integers(min_value=2, max_value=3))
    def start_again_from_the_head(self, length):
        if self.active:
            self.interruptions += 1
            self.bench.queue.cancel(self.run_id, "a person wanted it")
        self.run_id = self.bench.start(*PIPELINE[:length])

    @precondition(lambda self: self.interruptions < INTERRUPTIONS)
    @rule()
    def somebody_outside_writes(self):
        if self.serial and self.schedule.running:
            return
        self.overlapped |= bool(self.schedule.running)
        self.interruptions += 1
        self.schedule.write({"outside": str(next(serial_numbers))})

    # --- the orchestrator --------------------------------------------------------------------

    @precondition(lambda self: self.active)
    @rule(act=acts, place=places)
    def deliver(self, act, place):
        self.begin_what_is_due(act, place)

    @precondition(lambda self: self.active)
    @rule(act=st.sampled_from(WRITING), place=st.sampled_from(["publish.decided", "publish.sent"]))
    def deliver_to_a_worker_that_dies_publishing(self, act, place):
        worker = self.begin_what_is_due(act, place)
        if worker is not None:
            worker.crash()
            self.leases_run_out()

    @precondition(lambda self: self.active and self.schedule.running)
    @rule(act=acts, place=places)
    def leases_run_out_and_a_retry_begins(self, act, place):
        self.leases_run_out()
        self.begin_what_is_due(act, place)

    @precondition(lambda self: self.active and self.holder and not self.serial)
    @rule(act=acts, place=places, worker_id=worker_ids)
    def deliver_a_second_time(self, act, place, worker_id):
        first = self.holder
        assert self.bench.queue.give_back(first.delivery)
        second = self.begin(act, place, worker_id=worker_id)
        assert second.attempt == first.attempt
        assert second.delivery.poll_count == first.delivery.poll_count + 1

    @precondition(lambda self: self.active and not self.serial)
    @rule(act=acts, place=unended, twin_act=acts, twin_place=unended, worker_id=worker_ids)
    def deliver_to_two_workers_of_whom_the_first_ends_first(
        self, act, place, twin_act, twin_place, worker_id
    ):
        first = self.begin_what_is_due(act, place)
        if first is None or first is not self.holder:
            return
        knew_its_end = first.at == "report.ready"
        self.deliver_a_second_time(twin_act, twin_place, worker_id)
        self.go_to(first, "the end")
        if not first.outcome.report.completed and not knew_its_end:
            assert not first.outcome.accepted, "it spoke for a task that was no longer its own"

    @precondition(lambda self: self.active and self.stoppable)
    @rule(pick=picks, act=acts, place=places)
    def a_worker_is_stopped_and_gives_its_task_back(self, pick, act, place):
        stopped = self.stoppable[pick % len(self.stoppable)]
        stopped.crash()
        held = self.is_current(stopped)
        assert self.bench.queue.give_back(stopped.delivery) is held
        other = self.begin_what_is_due(act, place)
        if held and other is not None:
            assert other.attempt == stopped.attempt

    # --- workers -----------------------------------------------------------------------------

    @precondition(lambda self: self.schedule.running)
    @rule(pick=picks, place=st.sampled_from(["the next", *WINDOWS]))
    def advance(self, pick, place):
        worker = self.pick(pick)
        self.go_on(worker)
        if place != "the next":
            self.go_to(worker, place)

    @precondition(lambda self: self.schedule.running)
    @rule(pick=picks)
    def finish(self, pick):
        worker = self.pick(pick)
        attempt, act = worker.attempt, self.acts[worker.execution.id]
        last_fence = "fence2.passed" if act in WRITING else "fence1.passed"
        if last_fence in worker.passed or not self.everything_is_promised:
            self.go_to(worker, "the end")
            return
        current = self.is_current(worker)
        permitted = self.model.lets_publish(attempt, input_of(worker))
        twin_published = self.model.is_headed_by_a_twin(attempt, input_of(worker))
        self.go_to(worker, "the end")
        outcome = worker.outcome
        assert outcome.report.completed == (current and permitted and act in ENDING_WELL)
        assert outcome.accepted is (current and not (twin_published and act in ENDING_WELL))
        if outcome.report.completed:
            assert outcome.published.ref == self.bench.head
            assert (outcome.published.ref != input_of(worker)) == (act in WRITING)

    @precondition(lambda self: self.schedule.running)
    @rule(pick=picks, collected=st.booleans())
    def crash(self, pick, collected):
        self.pick(pick).crash()
        if collected:
            self.collect_leftovers()

    @precondition(lambda self: self.schedule.running)
    @rule(pick=picks, applied=st.booleans())
    def lose_an_answer(self, pick, applied):
        worker = self.pick(pick)
        worker.lose_answer(applied=applied)
        self.go_to(worker, "the end")

    # --- what always holds -------------------------------------------------------------------

    @invariant()
    def promises_hold(self):
        for holds in ATOMIC_STORE if self.everything_is_promised else EVERY_STORE:
            holds(self.schedule)

    @invariant()
    def the_branch_is_as_modelled(self):
        if not self.everything_is_promised:
            return
        inputs = {worker.execution.id: input_of(worker) for worker in self.schedule.workers}
        published = accepted_publications(self.bench)
        movements = self.schedule.ledger.movements
        for movement in movements[self.modelled :]:
            input_ref = inputs[movement.execution.id] if movement.execution else None
            self.model.apply(movement, input_ref, published)
        self.modelled = len(movements)
        assert self.bench.history()[::-1] == self.model.stack

    # --- steps of the above ------------------------------------------------------------------

    @property
    def everything_is_promised(self):
        return True

    @property
    def holder(self):
        """The worker that runs the last delivery of the attempt in progress; None without one."""
        return next((each for each in self.schedule.running if self.is_current(each)), None)

    @property
    def stoppable(self):
        """Who hasn't begun to publish: only they may give a task back."""
        return [each for each in self.schedule.running if "publish.head_read" not in each.passed]

    @property
    def active(self):
        return self.run_id is not None and self.bench.queue.get(self.run_id).status.is_active

    def begin_what_is_due(self, act, place):
        """The new worker, as far as ``place``; None if there is nothing to do."""
        if self.serial and self.schedule.running:
            return None
        self.bench.clock.advance(RETRY_DELAY)
        try:
            return self.begin(act, place)
        except LookupError:
            return None

    def begin(self, act, place, *, worker_id="worker-1"):
        delivery = self.bench.poll(*PIPELINE, worker_id=worker_id)
        self.overlapped |= bool(self.schedule.running)
        worker = self.schedule.begin(delivery, TASKS[delivery.attempt.task_name, act])
        self.acts[worker.execution.id] = act
        self.go_to(worker, place)
        return worker

    def go_to(self, worker, place):
        """Let it go on to that failpoint, or to its end if that isn't on its way."""
        while worker.at != place and not worker.ended:
            self.go_on(worker)

    def go_on(self, worker):
        worker.advance()
        if worker.at in ("fence1.passed", "fence2.passed") or is_about_to_replace(worker):
            assert self.is_current(worker), "a fence let a stale attempt pass"

    def is_current(self, worker):
        """Whether its attempt is in progress, and was not delivered again after it."""
        deliveries = [each for each in self.schedule.workers if each.attempt == worker.attempt]
        status = self.bench.queue.reload(worker.attempt).status
        return status is TaskStatus.IN_PROGRESS and worker is deliveries[-1]

    def leases_run_out(self):
        self.bench.clock.advance(LEASE + 1)
        self.bench.queue.poll([], worker_id="nobody")

    def collect_leftovers(self):
        for leftover in leftovers(self.bench.attempts):
            collect(self.bench.store, leftover)

    def pick(self, number):
        running = self.schedule.running
        return running[number % len(running)]


def is_about_to_replace(worker):
    if worker.at != "publish.decided":
        return False
    return worker.journal.of("publish.decided")["move"] in ("replace", "relocate_back")


def input_of(worker):
    return worker.delivery.input["workspace"]["ref"]


class LakefsStoreMachine(AtomicStoreMachine):
    """Without conditional updates everything is promised only while no two executions overlap.

    Once they did, or something outside wrote while one ran, what is left is ``EVERY_STORE``.
    """

    semantics = "lakefs"

    @initialize(serial=st.sampled_from([False, False, True]))
    def decide_whether_executions_may_overlap(self, serial):
        self.serial = serial

    @property
    def everything_is_promised(self):
        return not self.overlapped


TestAtomicStore = AtomicStoreMachine.TestCase
TestLakefsStore = LakefsStoreMachine.TestCase
TestAtomicStore.settings = TestLakefsStore.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
