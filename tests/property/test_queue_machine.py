"""The embedded queue against a small model: any order of workers, people, time-outs and repeats."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perago.adapters.embedded.queue import EmbeddedQueue
from perago.errors import BranchBusyError, RunError
from perago.model.attempt import TaskStatus
from perago.model.outcome import TaskReport
from perago.model.run import RunPlan, RunStatus
from perago.testing.bench import ManualClock
from perago.testing.conformance.orchestrator_bench import LEASE, moved, step, workspace

STEPS = (step("first"), step("second"), step("third"))
PLAN = RunPlan("chain", "chains:chain", STEPS)
NAMES = [one.task_name for one in STEPS]
PLACES = (workspace("commit-0"), workspace("commit-0"))

UNFINISHED = (TaskStatus.SCHEDULED, TaskStatus.IN_PROGRESS)
ENDS = st.sampled_from(["COMPLETED", "COMPLETED", "FAILED", "FAILED_WITH_TERMINAL_ERROR"])
picks = st.integers(min_value=0, max_value=10**6)


class QueueMachine(RuleBasedStateMachine):
    """Workers keep every delivery they ever got, so late and repeated reports happen all the time.

    The model is what was accepted: per run, the step that completed last and the ref it reported,
    and which other runs of that branch there were by then.
    """

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = ManualClock()
        path = Path(self.directory.name) / "queue.db"
        self.queue = EmbeddedQueue(path, clock=self.clock, durable=False)
        self.runs = []
        self.held = []
        self.delivered = set()
        self.given_back = set()
        self.accepted = {}
        self.steps_done = {}
        self.refs = {}
        self.superseded = set()
        self.reports = 0

    def teardown(self):
        self.queue.close()
        self.directory.cleanup()

    # --- people ------------------------------------------------------------------------------

    @rule(place=st.sampled_from(PLACES))
    def start(self, place):
        busy = any(
            run.status.is_active and run.workspace.branch == place.branch
            for run in self.queue.runs(100)
        )
        try:
            run_id = self.queue.start(PLAN, place)
        except BranchBusyError:
            assert busy
        else:
            assert not busy
            self.runs.append(run_id)
            self.steps_done[run_id] = 0
            self.refs[run_id] = place.ref

    @precondition(lambda self: self.runs)
    @rule(pick=picks)
    def pause(self, pick):
        self._ask_of_active(self.queue.pause, pick)

    @precondition(lambda self: self.runs)
    @rule(pick=picks)
    def cancel(self, pick):
        self._ask_of_active(self.queue.cancel, pick)

    def _ask_of_active(self, wish, pick):
        run_id = self.runs[pick % len(self.runs)]
        allowed = self.queue.get(run_id).status.is_active
        try:
            wish(run_id, "a person wanted it")
        except RunError:
            assert not allowed
        else:
            assert allowed

    @precondition(lambda self: self.runs)
    @rule(pick=picks)
    def resume(self, pick):
        run_id = self.runs[pick % len(self.runs)]
        before = self.queue.get(run_id)
        rival = any(
            run.id != run_id and run.status.is_active and run.workspace == before.workspace
            for run in self.queue.runs(100)
        )
        over = before.status in (RunStatus.COMPLETED, RunStatus.TERMINATED)
        try:
            self.queue.resume(run_id)
        except RunError:
            assert over or rival or run_id in self.superseded
        else:
            assert not over
            assert not rival
            assert run_id not in self.superseded
            held = {r.attempt for r in before.attempts if r.status is TaskStatus.IN_PROGRESS}
            assert all(self.queue.reload(a).status is TaskStatus.TIMED_OUT for a in held)

    # --- workers -----------------------------------------------------------------------------

    @rule(limit=st.integers(min_value=1, max_value=3))
    def poll(self, limit):
        for delivery in self.queue.poll(NAMES, worker_id="w", limit=limit):
            run_id = delivery.attempt.workflow_instance_id
            assert delivery.attempt.reference_task_name == STEPS[self.steps_done[run_id]].reference
            assert delivery.input["workspace"]["ref"] == self.refs[run_id]
            again = delivery.attempt.task_id in self.delivered
            assert again == (delivery.attempt.task_id in self.given_back)
            self.given_back.discard(delivery.attempt.task_id)
            self.delivered.add(delivery.attempt.task_id)
            self.held.append(delivery)

    @precondition(lambda self: self.held)
    @rule(pick=picks, end=ENDS)
    def report(self, pick, end):
        delivery = self.held[pick % len(self.held)]
        attempt, run_id = delivery.attempt, delivery.attempt.workflow_instance_id
        report = self._new_report(TaskStatus(end))
        current = self.queue.reload(attempt).status is TaskStatus.IN_PROGRESS
        receipt = self.queue.report(delivery, report)
        assert receipt.accepted is current
        assert receipt.status is self.queue.reload(attempt).status
        if receipt.accepted:
            self.accepted[attempt.task_id] = report
            if report.completed:
                self.steps_done[run_id] += 1
                self.refs[run_id] = report.output["workspace"]["ref"]
                self.superseded |= set(self._others_on_the_branch_of(run_id))

    @precondition(lambda self: self.accepted)
    @rule(pick=picks)
    def repeat_an_accepted_report(self, pick):
        task_id = sorted(self.accepted)[pick % len(self.accepted)]
        delivery = next(d for d in self.held if d.attempt.task_id == task_id)
        run_id = delivery.attempt.workflow_instance_id
        before = self.queue.get(run_id)
        assert self.queue.report(delivery, self.accepted[task_id]).accepted
        assert self.queue.get(run_id).attempts == before.attempts

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def heartbeat(self, pick):
        delivery = self.held[pick % len(self.held)]
        assert self.queue.heartbeat(delivery) is self._is_held(delivery)

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def give_back(self, pick):
        delivery = self.held[pick % len(self.held)]
        held = self._is_held(delivery)
        assert self.queue.give_back(delivery) is held
        if held:
            self.given_back.add(delivery.attempt.task_id)

    @rule(seconds=st.sampled_from([1.0, LEASE - 1.0, LEASE + 1.0]))
    def wait(self, seconds):
        self.clock.advance(seconds)
        self.queue.poll([], worker_id="nobody")

    # --- what always holds -------------------------------------------------------------------

    @invariant()
    def the_chain_is_serial_and_nothing_accepted_is_lost(self):
        for run_id in self.runs:
            run = self.queue.get(run_id)
            done = [r for r in run.attempts if r.status is TaskStatus.COMPLETED]
            open_ = [r for r in run.attempts if r.status in UNFINISHED]
            assert [r.attempt.reference_task_name for r in done] == [
                one.reference for one in STEPS[: self.steps_done[run_id]]
            ]
            assert run.output_ref == self.refs[run_id]
            assert len(open_) == (1 if run.status.is_active else 0)
            assert (run.status is RunStatus.COMPLETED) == (len(done) == len(STEPS))
            assert [r.attempt.seq for r in run.attempts] == list(range(1, len(run.attempts) + 1))

    @invariant()
    def a_branch_has_one_active_run(self):
        active = [r.workspace.branch for r in self.queue.runs(100) if r.status.is_active]
        assert len(active) == len(set(active))

    @invariant()
    def the_run_to_resume_is_the_newest_that_may_go_on(self):
        over = (RunStatus.COMPLETED, RunStatus.TERMINATED)
        newest = next(
            (
                run_id
                for run_id in reversed(self.runs)
                if self.queue.get(run_id).status not in over and run_id not in self.superseded
            ),
            None,
        )
        found = self.queue.resumable(PLAN.name)
        assert (found and found.id) == newest

    def _is_held(self, delivery):
        """Whether it is the last delivery of an attempt in progress."""
        task_id = delivery.attempt.task_id
        last = [d for d in self.held if d.attempt.task_id == task_id][-1]
        in_progress = self.queue.reload(delivery.attempt).status is TaskStatus.IN_PROGRESS
        return in_progress and delivery is last

    def _others_on_the_branch_of(self, run_id):
        branch = self.queue.get(run_id).workspace.branch
        for other in self.runs:
            if other != run_id and self.queue.get(other).workspace.branch == branch:
                yield other

    def _new_report(self, status):
        self.reports += 1
        if status is not TaskStatus.COMPLETED:
            return TaskReport(status, reason=f"no luck, take {self.reports}")
        return moved(PLACES[0], f"commit-{self.reports}")


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
