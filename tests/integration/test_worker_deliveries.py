"""Two workers at one task: one that came back from the dead, or one that was handed it as well."""

import time

import pytest
from support import slow_except
from support.processes import until
from support.tasks import worker_tasks
from support.worker import attempts_of

from perago.testing.bench import delivery_of

COMPLETED = [("grow", "COMPLETED")]
PATIENTLY = [("grow_patiently", "COMPLETED")]


def held_at(place, failpoint, chain=worker_tasks.growing):
    """A worker whose executor is stopped there, at the only step of a run; the run's id."""
    first = place.worker(PERAGO_FAILPOINTS=f"{failpoint}=stop-once:{place.fresh}")
    run_id = place.start(chain)
    first.stopped_executor()
    return first, run_id


def assert_one_publication(place, run, first, second):
    """It is the accepted one, and of neither worker anything else is left."""
    assert len(place.published()) == 1
    assert place.history()[-1].id == run.output_ref
    for worker in (first, second):
        worker.stop()
    place.assert_nothing_left("home", "another")


# --- one that stood still past its lease ----------------------------------------------------------


@pytest.mark.parametrize(
    "failpoint",
    slow_except(
        "publish.decided",
        of=["staging.uploaded", "fence2.passed", "publish.decided", "publish.cleared"],
    ),
)
def test_a_worker_that_wakes_up_after_its_retry_published_is_refused(failpoint, place):
    late, run_id = held_at(place, failpoint)
    late.freeze()
    prompt = place.worker(home="another")
    run = place.completed(run_id)
    assert attempts_of(run) == [("grow", "TIMED_OUT"), ("grow", "COMPLETED")]

    late.thaw()
    assert late.wait_for("attempt.ended")["status"] in ("LOST", "FAILED (not accepted)")
    assert attempts_of(place.run(run_id)) == attempts_of(run)
    assert_one_publication(place, run, late, prompt)


@pytest.mark.parametrize(
    "failpoint", slow_except("publish.sent", of=["publish.sent", "report.ready"])
)
def test_a_completion_that_comes_after_the_time_out_changes_nothing(failpoint, place):
    late, run_id = held_at(place, failpoint)
    (abandoned,) = [commit.id for commit in place.history()[1:]]
    late.freeze()
    prompt = place.worker(home="another")
    run = place.completed(run_id)
    assert attempts_of(run) == [("grow", "TIMED_OUT"), ("grow", "COMPLETED")]
    assert run.output_ref != abandoned

    late.thaw()
    assert late.wait_for("attempt.ended")["status"] in ("LOST", "COMPLETED (not accepted)")
    assert attempts_of(place.run(run_id)) == attempts_of(run)
    assert_one_publication(place, run, late, prompt)


# --- one task id, delivered twice -----------------------------------------------------------------


def deliver_again(place, run_id):
    """Have Conductor hand out the task that is being worked on once more, by the same id."""
    (record,) = place.run(run_id).attempts
    place.conductor.requeue(delivery_of(record))


@pytest.mark.parametrize(
    "failpoint", slow_except("body.done", of=["workspace.fetched", "body.done", "fence2.passed"])
)
def test_the_earlier_delivery_is_stopped_and_the_later_one_publishes(failpoint, place):
    first, run_id = held_at(place, failpoint)
    deliver_again(place, run_id)
    second = place.worker(home="another")
    run = place.completed(run_id)

    assert attempts_of(run) == COMPLETED
    assert run.attempts[0].worker_id == second.wait_for("serving")["worker"]
    assert "delivered again" in first.wait_for("attempt.ended", status="LOST")["reason"]
    assert_one_publication(place, run, first, second)


def test_the_earlier_delivery_finds_out_by_itself_at_the_fence_and_says_nothing(place):
    first, run_id = held_at(place, "body.done", worker_tasks.growing_patiently)
    executor = first.stopped_executor()
    first.freeze()
    deliver_again(place, run_id)
    second = place.worker(
        home="another", PERAGO_FAILPOINTS=f"fence1.passed=stop-once:{place.fresh}"
    )
    held = second.stopped_executor()
    first.resume(executor)
    first.wait_for_step(run_id, "report", silent=True)
    assert [a.status for a in place.run(run_id).attempts] == ["IN_PROGRESS"]

    second.resume(held)
    run = place.completed(run_id)
    assert attempts_of(run) == PATIENTLY
    assert run.attempts[0].worker_id == second.wait_for("serving")["worker"]
    first.thaw()
    assert_one_publication(place, run, first, second)


def test_of_two_that_passed_their_fences_the_first_to_publish_is_accepted(place):
    first, run_id = held_at(place, "fence2.passed", worker_tasks.growing_patiently)
    executor = first.stopped_executor()
    first.freeze()
    deliver_again(place, run_id)
    second = place.worker(
        home="another", PERAGO_FAILPOINTS=f"fence2.passed=stop-once:{place.fresh}"
    )
    held = second.stopped_executor()
    first.resume(executor)
    first.wait_for_step(run_id, "report", accepted=True)

    second.resume(held)
    second.wait_for("attempt.ended")
    run = place.completed(run_id)
    assert attempts_of(run) == PATIENTLY
    assert run.attempts[0].worker_id == first.wait_for("serving")["worker"]
    first.thaw()
    assert_one_publication(place, run, first, second)


@pytest.mark.slow
def test_a_failure_of_the_earlier_delivery_is_not_the_tasks(place):
    """Its lease ran out, by what it was told of it, while the later one kept it."""
    first, run_id = held_at(place, "fence2.passed")
    executor = first.stopped_executor()
    first.freeze()
    deliver_again(place, run_id)
    second = place.worker(
        home="another", PERAGO_FAILPOINTS=f"fence1.passed=stop-once:{place.fresh}"
    )
    held = second.stopped_executor()
    over = time.monotonic() + worker_tasks.LEASE_SECONDS
    until(lambda: time.monotonic() > over, "the first one's lease to be over")
    first.resume(executor)
    assert "lease_too_short" in first.wait_for_step(run_id, "report", silent=True)["reason"]

    second.resume(held)
    run = place.completed(run_id)
    assert attempts_of(run) == COMPLETED
    first.thaw()
    assert_one_publication(place, run, first, second)


@pytest.mark.parametrize(
    "failpoint", slow_except("report.ready", of=["publish.sent", "report.ready"])
)
def test_what_the_earlier_delivery_has_published_is_left_for_it_to_report(failpoint, place):
    first, run_id = held_at(place, failpoint)
    (published,) = [commit.id for commit in place.history()[1:]]
    deliver_again(place, run_id)
    second = place.worker(home="another")
    silent = second.wait_for("attempt.ended")
    assert silent["status"] == "FAILED (not accepted)"
    assert "another execution of this same delivery" in silent["reason"]
    assert [a.status for a in place.run(run_id).attempts] == ["IN_PROGRESS"]

    first.resume(first.stopped_executor())
    run = place.completed(run_id)
    assert attempts_of(run) == COMPLETED
    assert run.output_ref == published
    assert_one_publication(place, run, first, second)
