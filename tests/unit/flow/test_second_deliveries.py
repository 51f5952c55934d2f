"""One task id in the hands of two workers: one speaks for the task, the other says nothing."""

from __future__ import annotations

import pytest

from perago import TaskTerminalError
from perago.errors import OrchestratorUnavailableError
from perago.flow.lifecycle import run_attempt
from perago.model.attempt import TaskStatus
from perago.model.run import RunStatus

ANOTHER, THE_SAME = "worker-2", "worker-1"
to_whom = pytest.mark.parametrize("worker_id", [ANOTHER, THE_SAME], ids=["another", "the same"])


@pytest.fixture
def deliver_again_at(stage, edits):
    """Make the first attempt; at that failpoint, its task is delivered once more.

    Gives the first one's outcome, and how to run the second delivery.
    """

    def deliver(place, *, body=edits, worker_id=ANOTHER):
        step = stage.declare(body)
        stage.bench.start(step, ref=stage.A)
        deliveries = []

        def hand_it_out_once_more():
            deliveries.append(stage.deliver_again(worker_id=worker_id))

        outcome = stage.again(step, faults={place: hand_it_out_once_more})
        return outcome, lambda: run_attempt(deliveries[0], step, stage.bench.runtime())

    return deliver


def assert_silent(stage, outcome, *, code):
    """It failed with that code, reported nothing, and the task is still its twin's."""
    assert outcome.report.reason.startswith(f"{code}: ")
    assert outcome.report.output == {}
    assert not outcome.accepted
    assert stage.journal.of("report")["silent"]
    (record,) = stage.bench.queue.runs()[0].attempts
    assert (record.status, record.reason) == (TaskStatus.IN_PROGRESS, None)
    stage.assert_nothing_left()


def assert_published_once(stage, outcome):
    assert outcome.accepted
    assert stage.bench.history()[:2] == [outcome.published.ref, stage.A]
    stage.assert_nothing_left()


@to_whom
@pytest.mark.parametrize("place", ["directory.created", "body.done", "post.checked"])
def test_superseded_before_fence_1_it_stages_nothing(stage, deliver_again_at, place, worker_id):
    first, run_the_second = deliver_again_at(place, worker_id=worker_id)
    assert_silent(stage, first, code="superseded")
    assert stage.journal.of("fence1")["error"] == "superseded"
    assert "stage.branch" not in stage.journal.steps()
    assert stage.bench.head == stage.A
    assert_published_once(stage, run_the_second())


@to_whom
@pytest.mark.parametrize("place", ["fence1.passed", "staging.uploaded", "staging.committed"])
def test_superseded_before_fence_2_it_publishes_nothing(stage, deliver_again_at, place, worker_id):
    first, run_the_second = deliver_again_at(place, worker_id=worker_id)
    assert_silent(stage, first, code="superseded")
    assert stage.journal.of("fence2")["error"] == "superseded"
    assert "publish.decided" not in stage.journal.steps()
    assert stage.bench.head == stage.A
    assert_published_once(stage, run_the_second())


@to_whom
@pytest.mark.parametrize("place", ["publish.head_read", "publish.decided"])
@pytest.mark.parametrize("changes", [True, False], ids=["replacement", "relocation back"])
def test_superseded_before_a_reset_it_does_not_reset(
    *, stage, edits, no_edits, deliver_again_at, place, changes, worker_id
):
    abandoned = stage.someone_writes()
    body = edits if changes else no_edits
    first, run_the_second = deliver_again_at(place, body=body, worker_id=worker_id)
    assert_silent(stage, first, code="superseded")
    assert stage.bench.head == abandoned
    second = run_the_second()
    assert second.accepted
    assert second.published.replaced == abandoned


def fail(workspace):
    raise TaskTerminalError("wrong file")


def test_superseded_its_body_may_fail_as_it_likes(stage, deliver_again_at):
    first, run_the_second = deliver_again_at("pre.checked", body=fail)
    assert_silent(stage, first, code="task_terminal")
    assert run_the_second().accepted
    assert stage.bench.queue.runs()[0].status is RunStatus.FAILED


def test_one_that_published_before_it_was_superseded_is_the_one_that_counts(
    stage, deliver_again_at
):
    first, run_the_second = deliver_again_at("publish.sent")
    assert_published_once(stage, first)
    second = run_the_second()
    assert not second.accepted
    assert second.report.reason.startswith("stale_attempt")
    assert_published_once(stage, first)


@pytest.mark.parametrize("changes", [True, False], ids=["changed", "nothing changed"])
def test_what_a_twin_published_is_left_to_its_report(stage, edits, no_edits, changes):
    step, twin = stage.declare(edits), stage.declare(edits if changes else no_edits)
    stage.bench.start(step)
    seconds = []

    def run_the_second():
        seconds.append(run_attempt(stage.deliver_again(), twin, stage.bench.runtime()))
        (record,) = stage.bench.queue.runs()[0].attempts
        assert (record.status, record.reason) == (TaskStatus.IN_PROGRESS, None)

    first = stage.again(step, faults={"report.ready": run_the_second})
    (second,) = seconds
    assert not second.accepted
    assert second.report.reason.startswith("twin_published: ")
    assert first.execution_id in second.report.reason
    assert_published_once(stage, first)


def test_a_failure_is_reported_if_nobody_says_whether_it_was_superseded(stage):
    down = stage.flaky_queue(reload=[OrchestratorUnavailableError("no answer")])
    outcome = stage.attempt(fail, orchestrator=down)
    assert outcome.accepted
    assert outcome.report.status is TaskStatus.FAILED_WITH_TERMINAL_ERROR


class Died(BaseException):
    """What a process that is killed does not live to handle."""


def die():
    raise Died


def test_what_a_dead_twin_published_is_a_retrys_to_replace(stage, edits):
    step = stage.declare(edits)
    stage.bench.start(step)
    with pytest.raises(Died):
        stage.again(step, faults={"report.ready": die})
    abandoned = stage.bench.head
    second = run_attempt(stage.deliver_again(), step, stage.bench.runtime())
    assert second.report.reason.startswith("twin_published")
    assert stage.bench.head == abandoned

    stage.time_out()
    retry = stage.again(step)
    assert retry.accepted
    assert retry.published.replaced == abandoned
