"""What a poller does with offers, leases and an orchestrator that comes and goes."""

import threading
import time
from dataclasses import replace
from itertools import pairwise
from queue import Empty, Queue

import pytest

from perago.errors import OrchestratorAccessError, OrchestratorUnavailableError
from perago.model.attempt import Attempt, AttemptSnapshot, Delivery, TaskStatus
from perago.model.outcome import ReportReceipt, TaskReport
from perago.worker.messages import (
    AddCredit,
    DropPrefetch,
    GiveBack,
    KeepLease,
    LeaseRenewed,
    ReleaseLease,
    ReportDeath,
    SetTasks,
    StopPolling,
)
from perago.worker.orchestrator_link import (
    DeathReported,
    Delivered,
    GivenBack,
    LeaseLost,
    OrchestratorReachable,
    OrchestratorUnreachable,
    PollingStopped,
    QueueEmpty,
)
from perago.worker.poller import Poller

PATIENCE_SECONDS = 10


def delivery(task_id, **changed):
    attempt = Attempt("run", "step", 1, 0, task_id, 0, "task")
    return replace(Delivery(attempt, {}, "worker", 60.0), **changed)


class Scripted:
    """An orchestrator whose every answer the test decides; it counts what it is asked."""

    def __init__(self):
        self.queue = []
        self.asked = []
        self.away = False
        self.status = TaskStatus.IN_PROGRESS
        self.poll_count = 1
        self.beats = 0
        self.reports = []
        self.is_asked = threading.Event()
        self.lock = threading.Lock()

    def _answer(self):
        if self.away:
            raise OrchestratorUnavailableError("away")

    def poll(self, task_names, *, worker_id, limit=1):  # noqa: ARG002 - the port's
        self.is_asked.set()
        with self.lock:
            self.asked.append((time.monotonic(), tuple(task_names), limit))
            self._answer()
            found, self.queue = self.queue[:limit], self.queue[limit:]
            return found

    def reload(self, attempt):
        self._answer()
        return AttemptSnapshot(
            self.status, attempt.workflow_instance_id, attempt.task_id, 0, self.poll_count, "worker"
        )

    def heartbeat(self, delivery):
        self._answer()
        self.beats += 1
        return self.status is TaskStatus.IN_PROGRESS and self.poll_count == delivery.poll_count

    def report(self, delivery, report):
        self._answer()
        self.reports.append((delivery.attempt.task_id, report))
        return ReportReceipt(accepted=True, status=report.status)

    def give_back(self, _delivery):
        self._answer()
        return True


@pytest.fixture
def orchestrator():
    return Scripted()


@pytest.fixture
def told():
    return Queue()


@pytest.fixture
def poller(orchestrator, told):
    poller = Poller(orchestrator, "worker", lambda *news: [told.put(each) for each in news])
    poller.start()
    yield poller
    poller.execute(StopPolling())
    for task_id in ("1", "slow", "quick"):
        poller.execute(ReleaseLease(f"{task_id}#1", confirm=False))


def next_of(told, *kinds):
    """The next news of these kinds; others are passed by."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            news = told.get(timeout=deadline - time.monotonic())
        except (Empty, ValueError):
            raise AssertionError(f"none of {kinds} within {PATIENCE_SECONDS} s") from None
        if isinstance(news, kinds):
            return news


def test_it_asks_for_no_more_than_it_was_offered(orchestrator, poller, told):
    orchestrator.queue = [delivery(str(n)) for n in range(5)]
    poller.execute(SetTasks(("task",)))
    poller.execute(AddCredit(2))
    assert {next_of(told, Delivered).delivery.attempt.task_id for _ in range(2)} == {"0", "1"}
    assert max(limit for _, _, limit in orchestrator.asked) == 2
    poller.execute(AddCredit(1))
    assert next_of(told, Delivered).delivery.attempt.task_id == "2"
    assert len(orchestrator.queue) == 2


def test_it_asks_for_nothing_before_it_knows_what_and_after_it_is_told_to_stop(
    orchestrator, poller, told
):
    poller.execute(AddCredit(1))
    assert orchestrator.asked == []
    poller.execute(SetTasks(("task",)))
    next_of(told, OrchestratorReachable)
    poller.execute(StopPolling())
    next_of(told, PollingStopped)
    before = len(orchestrator.asked)
    orchestrator.queue = [delivery("late")]
    poller.execute(AddCredit(1))
    with pytest.raises(Empty):
        told.get(timeout=1.5)
    assert len(orchestrator.asked) == before


def test_what_it_was_being_handed_when_told_to_stop_is_told_first(orchestrator, poller, told):
    orchestrator.queue = [delivery("1")]
    with orchestrator.lock:  # so that the answer takes until here
        poller.execute(SetTasks(("task",)))
        poller.execute(AddCredit(1))
        assert orchestrator.is_asked.wait(PATIENCE_SECONDS)
        poller.execute(StopPolling())
    assert isinstance(next_of(told, Delivered, PollingStopped), Delivered)
    next_of(told, PollingStopped)


def test_it_asks_ever_less_often_while_there_is_nothing(orchestrator, poller):
    poller.execute(SetTasks(("task",)))
    poller.execute(AddCredit(1))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(orchestrator.asked) < 7 and time.monotonic() < deadline:
        time.sleep(0.05)
    moments = [moment for moment, _, _ in orchestrator.asked]
    pauses = [later - earlier for earlier, later in pairwise(moments)]
    assert pauses[-1] > 4 * pauses[0]


def test_a_slot_that_becomes_free_is_asked_for_at_once(orchestrator, poller, told):
    poller.execute(SetTasks(("task",)))
    poller.execute(AddCredit(1))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(orchestrator.asked) < 7 and time.monotonic() < deadline:
        time.sleep(0.05)
    orchestrator.queue = [delivery("next")]
    began = time.monotonic()
    poller.execute(AddCredit(1))
    assert next_of(told, Delivered).polled_at - began < 0.3


def test_an_orchestrator_that_went_away_is_asked_on_and_said_once(orchestrator, poller, told):
    orchestrator.away = True
    poller.execute(SetTasks(("task",)))
    poller.execute(AddCredit(1))
    assert isinstance(
        next_of(told, OrchestratorReachable, OrchestratorUnreachable), OrchestratorUnreachable
    )
    while len(orchestrator.asked) < 3:
        time.sleep(0.02)
    orchestrator.queue = [delivery("1")]
    orchestrator.away = False
    assert isinstance(
        next_of(told, OrchestratorReachable, OrchestratorUnreachable), OrchestratorReachable
    )
    assert next_of(told, Delivered).delivery.attempt.task_id == "1"


def hold(poller, held, *, heartbeat=0.05):
    poller.execute(KeepLease(held, heartbeat, time.monotonic()))


def test_a_lease_in_hand_is_renewed_until_it_is_let_go(orchestrator, poller, told):
    held = delivery("1")
    hold(poller, held)
    first = next_of(told, LeaseRenewed)
    assert next_of(told, LeaseRenewed).at > first.at
    poller.execute(ReleaseLease("1#1", confirm=False))
    time.sleep(0.1)
    beats = orchestrator.beats
    time.sleep(0.3)
    assert orchestrator.beats == beats


def test_one_slow_answer_delays_no_other_heartbeat(orchestrator, poller, told):
    slow = threading.Event()
    beat = orchestrator.heartbeat

    def heartbeat(held):
        if held.attempt.task_id == "slow":
            slow.wait(PATIENCE_SECONDS)
        return beat(held)

    orchestrator.heartbeat = heartbeat
    hold(poller, delivery("slow"))
    hold(poller, delivery("quick"))
    assert next_of(told, LeaseRenewed).delivery_id == "quick#1"
    assert next_of(told, LeaseRenewed).delivery_id == "quick#1"
    slow.set()


@pytest.mark.parametrize(
    "status", [TaskStatus.TIMED_OUT, TaskStatus.CANCELED, TaskStatus.COMPLETED]
)
def test_a_lease_that_is_over_is_told(orchestrator, poller, told, status):
    orchestrator.status = status
    hold(poller, delivery("1"))
    assert next_of(told, LeaseLost, LeaseRenewed) == LeaseLost("1#1", status, f"it is {status}")


def test_a_delivery_that_was_made_again_is_told(orchestrator, poller, told):
    orchestrator.poll_count = 2
    hold(poller, delivery("1"))
    lost = next_of(told, LeaseLost, LeaseRenewed)
    assert lost.delivered_again
    assert "delivered again" in lost.why


def test_a_lost_lease_is_told_once_and_kept_no_more(orchestrator, poller, told):
    orchestrator.poll_count = 2
    hold(poller, delivery("1"))
    next_of(told, LeaseLost)
    beats = orchestrator.beats
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        assert not isinstance(_soon(told), (LeaseLost, LeaseRenewed))
    assert orchestrator.beats == beats


def _soon(told):
    try:
        return told.get(timeout=0.05)
    except Empty:
        return None


def test_while_nobody_answers_a_lease_is_asked_about_no_more_than_once_a_second(
    orchestrator, poller, told
):
    orchestrator.away = True
    asked = []
    beat = orchestrator.heartbeat
    orchestrator.heartbeat = lambda held: (asked.append(time.monotonic()), beat(held))[1]
    hold(poller, delivery("1"))
    next_of(told, OrchestratorUnreachable)
    time.sleep(2.2)
    assert 2 <= len(asked) <= 4


def test_an_error_of_another_kind_is_told_although_one_was_told_before(orchestrator, poller, told):
    orchestrator.away = True
    poller.execute(SetTasks(("task",)))
    poller.execute(AddCredit(1))
    assert next_of(told, OrchestratorUnreachable).error.code == "orchestrator_unavailable"
    orchestrator.poll = _refuse
    assert next_of(told, OrchestratorUnreachable).error.code == "orchestrator_access"


def _refuse(*_args, **_kwargs):
    raise OrchestratorAccessError("no entry")


def test_a_lease_is_not_lost_while_nobody_says_so(orchestrator, poller, told):
    orchestrator.away = True
    hold(poller, delivery("1"))
    assert isinstance(next_of(told, LeaseLost, OrchestratorUnreachable), OrchestratorUnreachable)
    orchestrator.away = False
    assert isinstance(next_of(told, LeaseLost, LeaseRenewed), LeaseRenewed)


REPORT = TaskReport(TaskStatus.FAILED, reason="its process died")


def test_the_dead_are_spoken_for_until_that_is_heard(orchestrator, poller, told):
    orchestrator.away = True
    poller.execute(ReportDeath(delivery("1"), REPORT))
    next_of(told, OrchestratorUnreachable)
    orchestrator.away = False
    assert next_of(told, DeathReported) == DeathReported(
        "1#1", ReportReceipt(accepted=True, status=REPORT.status)
    )
    assert orchestrator.reports == [("1", REPORT)]


def test_nobody_speaks_for_an_attempt_that_is_somebody_elses_now(orchestrator, poller, told):
    orchestrator.poll_count = 2
    poller.execute(ReportDeath(delivery("1"), REPORT))
    assert next_of(told, DeathReported) == DeathReported("1#1", None)
    assert orchestrator.reports == []


def test_what_is_given_back_is_told(orchestrator, poller, told):
    poller.execute(GiveBack(delivery("1")))
    assert next_of(told, GivenBack) == GivenBack("1#1", accepted=True)
    orchestrator.away = True
    poller.execute(GiveBack(delivery("2")))
    assert next_of(told, GivenBack) == GivenBack("2#1", accepted=False)


def test_offers_to_work_ahead_are_dropped_when_there_is_no_more(orchestrator, poller, told):
    orchestrator.queue = [delivery(str(n)) for n in range(3)]
    poller.execute(SetTasks(("task",)))
    poller.execute(AddCredit(2, ahead=4))
    assert [next_of(told, Delivered).delivery.attempt.task_id for _ in range(3)] == ["0", "1", "2"]
    assert next_of(told, QueueEmpty).dropped == 3
    orchestrator.queue = [delivery("late")]
    time.sleep(0.3)
    assert orchestrator.queue, "nobody is asked for any more"


def test_offers_to_work_ahead_are_dropped_when_they_are_withdrawn(poller, told):
    poller.execute(AddCredit(1, ahead=4))
    poller.execute(DropPrefetch())
    assert next_of(told, QueueEmpty).dropped == 4
