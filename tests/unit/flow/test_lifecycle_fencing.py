"""An attempt that lost its standing publishes nothing; one that can't clean up still counts."""

from __future__ import annotations

import json

import pytest

from perago import PublishBudget, TaskControls
from perago.errors import OrchestratorUnavailableError, UnknownAttemptError
from perago.flow.attempt_directory import collect, leftovers
from perago.model.attempt import TaskStatus
from perago.model.workspace import MARKER_NAME
from perago.ports.environment import FAILPOINTS
from perago.testing.faulty_store import FaultyStore, lose_answer, lose_request, refuse, unavailable

BUDGET = PublishBudget(
    observed_merge_p99_seconds=1,
    safety_margin_seconds=1,
    lakefs_merge_timeout_seconds=10,
    conductor_completion_timeout_seconds=9,
    worker_shutdown_grace_seconds=10,
    heartbeat_interval_seconds=1,
)


class Remaining:
    """A lease with that many seconds left."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.rests = False

    def remaining(self):
        return self.seconds

    def stop_heartbeats(self):
        self.rests = True


@pytest.mark.parametrize("lost", ["time_out", "cancel"])
@pytest.mark.parametrize("place", ["body.done", "post.checked"])
def test_an_attempt_that_lost_its_standing_before_fence_1_stages_nothing(stage, edits, place, lost):
    outcome = stage.attempt(edits, faults={place: getattr(stage, lost)})
    assert outcome.report.status is TaskStatus.FAILED
    assert not outcome.accepted
    assert "stale_attempt" in outcome.report.reason
    assert stage.bench.head == stage.A
    assert stage.journal.of("fence1")["error"] == "stale_attempt"
    assert "stage.branch" not in stage.journal.steps()
    stage.assert_nothing_left()


@pytest.mark.parametrize("lost", ["time_out", "cancel"])
@pytest.mark.parametrize("place", ["fence1.passed", "staging.uploaded", "staging.committed"])
def test_an_attempt_that_lost_its_standing_before_fence_2_publishes_nothing(
    stage, edits, place, lost
):
    outcome = stage.attempt(edits, faults={place: getattr(stage, lost)})
    assert "stale_attempt" in outcome.report.reason
    assert outcome.report.output == {}
    assert stage.bench.head == stage.A
    assert "publish.decided" not in stage.journal.steps()
    stage.assert_nothing_left()


def test_a_no_op_that_lost_its_standing_does_not_move_the_branch_back(stage, no_edits):
    head = stage.someone_writes()
    outcome = stage.attempt(no_edits, faults={"post.checked": stage.time_out})
    assert "stale_attempt" in outcome.report.reason
    assert stage.bench.head == head


def test_an_attempt_whose_retry_runs_already_is_stale(stage, edits):
    step = stage.declare(edits)
    stage.bench.start(step)
    retries = []

    def time_out_and_let_the_retry_run():
        stage.time_out()
        retries.append(stage.again(step))

    zombie = stage.again(step, faults={"staging.committed": time_out_and_let_the_retry_run})
    assert retries[0].accepted
    assert "stale_attempt" in zombie.report.reason
    assert stage.bench.head == retries[0].published.ref
    stage.assert_nothing_left()


def test_a_zombie_past_both_fences_never_undoes_its_retry_at_cas(atomic, edits):
    step = atomic.declare(edits)
    atomic.bench.start(step)
    retries = []

    def time_out_and_let_the_retry_run():
        atomic.time_out()
        retries.append(atomic.again(step))

    zombie = atomic.again(step, faults={"publish.decided": time_out_and_let_the_retry_run})
    assert "the merge was refused" in zombie.report.reason
    assert atomic.bench.history()[:2] == [retries[0].published.ref, atomic.A]


def test_an_orchestrator_that_does_not_answer_at_a_fence_is_waited_for(stage, edits):
    down = stage.flaky_queue(reload=[OrchestratorUnavailableError("restarting")] * 3)
    before = stage.bench.clock.monotonic()
    assert stage.attempt(edits, orchestrator=down, lease=Remaining(60)).accepted
    assert stage.bench.clock.monotonic() - before >= 1.4


def test_an_orchestrator_that_does_not_answer_while_the_lease_lasts_stops_the_attempt(stage, edits):
    down = stage.flaky_queue(reload=[OrchestratorUnavailableError("no answer")] * 99)
    controls = TaskControls(publish_budget=BUDGET)
    lease = Remaining(BUDGET.publish_seconds)
    outcome = stage.attempt(edits, orchestrator=down, controls=controls, lease=lease)
    assert outcome.report.status is TaskStatus.FAILED
    assert "orchestrator_unavailable" in outcome.report.reason
    assert stage.bench.head == stage.A


def test_a_publish_starts_only_while_the_lease_covers_the_budget(stage, edits):
    controls = TaskControls(publish_budget=BUDGET)
    outcome = stage.attempt(edits, controls=controls, lease=Remaining(19.5))
    assert outcome.report.status is TaskStatus.FAILED
    assert "lease_too_short" in outcome.report.reason
    assert stage.bench.head == stage.A
    stage.assert_nothing_left()


def test_a_lease_that_just_covers_the_budget_is_enough(stage, edits):
    controls = TaskControls(publish_budget=BUDGET)
    assert stage.attempt(edits, controls=controls, lease=Remaining(20)).accepted


def test_a_report_is_handed_in_again_until_the_orchestrator_answers(stage, edits):
    down = stage.flaky_queue(report=[OrchestratorUnavailableError("restarting")] * 3)
    assert stage.attempt(edits, orchestrator=down, lease=Remaining(60)).accepted


def test_no_heartbeat_is_under_way_when_the_report_is_handed_in(stage, edits):
    lease, seen = Remaining(60), []

    class Watching:
        def report(self, delivery, report):
            seen.append(lease.rests)
            return stage.bench.queue.report(delivery, report)

        def __getattr__(self, name):
            seen.append(lease.rests)
            return getattr(stage.bench.queue, name)

    assert stage.attempt(edits, orchestrator=Watching(), lease=lease).accepted
    assert seen == [False] * (len(seen) - 1) + [True]


def test_a_report_that_is_never_answered_is_given_up_with_the_lease(stage, edits):
    down = stage.flaky_queue(report=[OrchestratorUnavailableError("down")] * 99)
    lease = Remaining(60)
    run_out = {"report.ready": lambda: setattr(lease, "seconds", 0.1)}
    outcome = stage.attempt(edits, orchestrator=down, lease=lease, faults=run_out)
    assert outcome.report.completed
    assert not outcome.accepted
    assert stage.journal.of("report.given_up")["error"] == "down"
    stage.assert_nothing_left()


def test_a_report_that_arrived_unanswered_at_the_end_of_the_lease_is_read_back(stage, edits):
    class AnswersNoReport:
        def report(self, delivery, report):
            stage.bench.queue.report(delivery, report)
            raise OrchestratorUnavailableError("the answer got lost")

        def __getattr__(self, name):
            return getattr(stage.bench.queue, name)

    lease = Remaining(60)
    run_out = {"report.ready": lambda: setattr(lease, "seconds", 0.1)}
    assert stage.attempt(
        edits, orchestrator=AnswersNoReport(), lease=lease, faults=run_out
    ).accepted


def test_a_store_that_is_away_is_waited_for_before_anything_is_begun(stage, edits, edited):
    store = FaultyStore(stage.bench.store, {"get_commit": [unavailable] * 5})
    outcome = stage.attempt(edits, store=store, store_patience_seconds=60)
    assert outcome.accepted
    assert stage.bench.read() == edited
    assert "waiting for the store" in stage.journal.of("store.away")["warning"]


def test_a_store_that_stays_away_longer_than_that_fails_the_attempt(stage, edits):
    store = FaultyStore(stage.bench.store, {"get_commit": [unavailable] * 99})
    outcome = stage.attempt(edits, store=store, store_patience_seconds=60)
    assert outcome.report.status is TaskStatus.FAILED
    assert "store_unavailable" in outcome.report.reason
    stage.assert_nothing_left()


def test_an_orchestrator_that_forgot_the_attempt_still_lets_it_clean_up(stage, edits):
    forgetful = stage.flaky_queue(report=[UnknownAttemptError("no such task")])
    outcome = stage.attempt(edits, orchestrator=forgetful)
    assert not outcome.accepted
    assert stage.journal.of("report.given_up")["error"] == "no such task"
    stage.assert_nothing_left()


@pytest.mark.parametrize("fault", [lose_answer, lose_request, refuse, unavailable])
def test_failing_to_delete_the_staging_branch_changes_no_result(stage, edits, edited, fault):
    store = FaultyStore(stage.bench.store, {"delete_branch": [fault]})
    outcome = stage.attempt(edits, store=store)
    assert outcome.accepted
    assert stage.bench.read() == edited
    branch = stage.journal.of("stage.branch")["branch"]
    assert stage.journal.of("cleanup.failed")["branch"] == branch

    (leftover,) = leftovers(stage.bench.attempts)
    assert branch in leftover.branches
    assert [path.name for path in leftover.path.iterdir()] == [MARKER_NAME]
    collect(stage.bench.store, leftover)
    stage.assert_nothing_left()


def test_failing_to_remove_the_directory_changes_no_result(stage, edits):
    def remove_it_first():
        (directory,) = stage.bench.attempts.iterdir()
        directory.rename(stage.bench.root / "taken away")

    outcome = stage.attempt(edits, faults={"report.sent": remove_it_first})
    assert outcome.accepted
    assert "taken away" not in stage.journal.of("cleanup.failed")["path"]


def test_the_directory_is_there_until_the_report_is_sent(atomic, edits):
    seen = []
    atomic.attempt(
        edits,
        faults={
            "staging.deleted": lambda: seen.append(atomic.bench.staging_branches()),
            "report.sent": lambda: seen.append(len([*atomic.bench.attempts.iterdir()])),
            "directory.removed": lambda: seen.append(len([*atomic.bench.attempts.iterdir()])),
        },
    )
    assert seen == [[], 1, 0]


def test_the_marker_says_whose_directory_it_is_and_is_no_part_of_the_workspace(stage):
    seen = {}

    def body(workspace):
        marker = workspace.parent / ".perago-attempt.json"
        seen.update(json.loads(marker.read_text()))
        seen["in the workspace"] = sorted(path.name for path in workspace.iterdir())

    outcome = stage.attempt(body)
    assert seen["execution_id"] == outcome.execution_id
    assert seen["ref"] == stage.A
    assert all(outcome.execution_id in branch for branch in seen["branches"])
    assert seen["in the workspace"] == ["drop", "edit", "keep"]


def test_the_marker_is_never_uploaded(stage, edits):
    stage.attempt(edits)
    assert not [key for key in stage.bench.read() if "perago" in key]


@pytest.mark.parametrize(
    ("head_moved", "steps"),
    [
        (False, ["publish.decided", "publish"]),
        (True, ["publish.decided", "publish.replaced", "publish"]),
    ],
    ids=["merge", "replacement"],
)
def test_the_journal_tells_the_steps_in_their_order(stage, edits, head_moved, steps):
    if head_moved:
        stage.someone_writes()
    stage.attempt(edits)
    before = ["validate", "directory", "fetch", "pre", "body", "post", "fence1"]
    staging = ["stage.branch", "stage.upload", "stage.commit", "fence2"]
    assert stage.journal.steps() == [*before, *staging, *steps, "report"]


def test_the_journal_says_how_much_was_moved(stage, edits):
    stage.attempt(edits)
    fetched, uploaded = stage.journal.of("fetch"), stage.journal.of("stage.upload")
    assert (fetched["objects"], fetched["bytes"]) == (3, len("keptbeforedropped"))
    assert (uploaded["uploaded"], uploaded["deleted"]) == (2, 1)
    assert (uploaded["objects_moved"], uploaded["bytes_moved"]) == (2, len("afternew"))


def test_a_merge_passes_every_failpoint_in_the_order_they_are_listed(stage, edits):
    passed = []
    stage.attempt(
        edits, faults={name: (lambda name=name: passed.append(name)) for name in FAILPOINTS}
    )
    assert passed == list(FAILPOINTS)
