"""Many short tasks at once: taken ahead in batches, given back, and nothing left of them."""

from pathlib import Path

import pytest
from support.processes import until
from support.tasks import worker_tasks
from support.worker import reached

pytestmark = pytest.mark.slow

MANY = 60
GIVEN_BACK_SECONDS = 30.0


def start_many(place, count=MANY):
    place.register(worker_tasks.counting)
    plan = worker_tasks.counting.plan()
    return [place.conductor.start_plan(plan, None) for _ in range(count)]


def attempts_in(place, run_ids):
    return [attempt for run_id in run_ids for attempt in place.run(run_id).attempts]


@pytest.mark.core
def test_all_are_done_at_the_first_attempt_and_leave_no_files(place):
    runs = start_many(place)
    worker = place.worker(jobs=2)
    for run_id in runs:
        place.completed(run_id)
    attempts = attempts_in(place, runs)
    assert [a.attempt.retry_count for a in attempts] == [0] * MANY
    assert len(worker.heard("attempt.ended", status="COMPLETED")) == MANY
    worker.stop()
    place.assert_nothing_left()
    logs = Path(worker.home) / "logs"
    assert not list(logs.glob(".printed-*"))
    # One that happened to take long is worth a directory; on a busy machine that may be many.
    assert len(list(logs.iterdir())) < MANY


def test_what_a_stopped_worker_had_taken_ahead_is_done_by_the_next_at_once(place):
    runs = start_many(place)
    first = place.worker(jobs=2)
    until(lambda: len(first.heard("attempt.ended")) >= MANY // 4, lambda: f"some ends\n{first}")
    first.stop()
    place.worker(jobs=2, home="another")
    for run_id in runs:
        place.completed(run_id)
    attempts = attempts_in(place, runs)
    assert {a.status for a in attempts} == {"COMPLETED"}, "no lease had to run out"
    assert [a.attempt.retry_count for a in attempts] == [0] * MANY


def test_what_waits_behind_a_long_one_is_given_back(place):
    """One executor, kept busy with short ones, then by one that waits at a gate."""
    worker, gate = place.worker(), place.fresh
    short = start_many(place, 20)
    long = place.start(worker_tasks.counting, {"count": {"gate": str(gate)}})
    after = start_many(place, 20)
    until(lambda: reached(gate), lambda: f"the long one to begin\n{worker}")
    until(
        lambda: not [a for a in attempts_in(place, after) if a.status == "IN_PROGRESS"],
        lambda: f"what waits to be given back\n{worker}",
        seconds=GIVEN_BACK_SECONDS,
    )
    gate.touch()
    for run_id in (*short, long, *after):
        place.completed(run_id)
    attempts = attempts_in(place, (*short, long, *after))
    assert [a.attempt.retry_count for a in attempts] == [0] * len(attempts)
