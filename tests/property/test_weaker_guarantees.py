"""What level ``soft`` on a store without conditional updates does not promise, example by example.

Each example is one interleaving. On the lakeFS-like store it breaks the named promise; on the
atomic store the very same interleaving keeps all of them. What ``soft`` still promises is checked
after every one of them.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import BaseModel
from support.invariants import (
    AT_THE_END,
    ATOMIC_STORE,
    EVERY_STORE,
    InvariantViolated,
    accepted,
    accepted_publications,
    no_empty_commits,
    nothing_accepted_is_lost,
    one_commit_per_step,
    one_effective_publication,
    one_publication_per_accepted_task,
    refused_changed_nothing,
)
from support.schedule import Schedule

from perago import WorkspaceSpec, task
from perago.flow.attempt_directory import collect, leftovers
from perago.model.controls import RetryPolicy, TaskControls, TimeoutPolicy
from perago.model.run import RunStatus
from perago.testing import Bench

LEASE = 60
serial_numbers = itertools.count()


class Params(BaseModel):
    pass


class Result(BaseModel):
    pass


def declare(name, act):
    def body(ws: Path, params: Params) -> Result:
        act(ws)
        return Result()

    return task(
        name=name,
        owner_email="data@example.com",
        workspace=WorkspaceSpec(),
        controls=TaskControls(
            retry=RetryPolicy(delay_seconds=0), timeout=TimeoutPolicy(response_seconds=LEASE)
        ),
    )(body)


# Bodies that one and the same step may turn out to have: executions needn't do the same.
write_own_file = declare(
    "first", lambda ws: (ws / f"file-{next(serial_numbers)}").write_text("mine")
)
write_same_bytes = declare("first", lambda ws: (ws / "answer").write_text("42"))
write_nothing = declare("first", lambda _ws: None)
follow = declare("second", lambda ws: (ws / "followed").write_text("up"))


@dataclass
class Stage:
    """A bench with a schedule on it, and what the examples have in common."""

    bench: Bench
    schedule: Schedule

    def lease_runs_out(self):
        self.bench.clock.advance(LEASE + 1)
        self.bench.queue.poll([], worker_id="nobody")

    def worker_at(self, place, body=write_own_file):
        worker = self.schedule.deliver(body)
        worker.run_to(place)
        return worker

    def breaks(self, promise):
        try:
            promise(self.schedule)
        except InvariantViolated:
            return True
        return False


@pytest.fixture
def stage_for(tmp_path):
    opened = []

    def open_stage(semantics):
        bench = Bench(tmp_path / semantics, semantics=semantics)
        stage = Stage(bench, Schedule(bench))
        opened.append(stage)
        return stage

    yield open_stage
    for stage in opened:
        stage.schedule.close()
        stage.bench.close()


# --- the interleavings ----------------------------------------------------------------------------


def a_late_merge_lands_on_the_retrys_commit(stage):
    """A worker decides to merge, is timed out, and its request arrives after the retry's."""
    stage.bench.start(write_own_file, follow)
    zombie = stage.worker_at("publish.decided")
    stage.lease_runs_out()
    assert stage.schedule.deliver(write_own_file).finish().accepted
    return zombie.finish()


def two_executions_of_one_delivery_both_merge(stage):
    """One task id is delivered twice, and both workers read the same head before either merges."""
    stage.bench.start(write_own_file, follow)
    first = stage.worker_at("publish.decided")
    second = stage.schedule.deliver_again(first)
    second.run_to("publish.decided")
    first.finish()
    return second.finish()


def a_late_merge_brings_the_same_bytes(stage):
    """As the first one, with a task that is deterministic, as tasks should be."""
    stage.bench.start(write_same_bytes, follow)
    zombie = stage.worker_at("publish.decided", write_same_bytes)
    stage.lease_runs_out()
    assert stage.schedule.deliver(write_same_bytes).finish().accepted
    return zombie.finish()


def a_late_reset_destroys_what_was_accepted_since(stage):
    """A retry may replace an abandoned head, is timed out, and its reset arrives late."""
    stage.bench.start(write_own_file, follow)
    stage.worker_at("publish.sent").crash()
    stage.lease_runs_out()
    zombie = stage.worker_at("publish.cleared")
    stage.lease_runs_out()
    assert stage.schedule.deliver(write_own_file).finish().accepted
    assert stage.schedule.deliver(follow).finish().accepted
    return zombie.finish()


NOT_PROMISED = {
    one_commit_per_step: a_late_merge_lands_on_the_retrys_commit,
    refused_changed_nothing: a_late_merge_lands_on_the_retrys_commit,
    one_effective_publication: two_executions_of_one_delivery_both_merge,
    one_publication_per_accepted_task: two_executions_of_one_delivery_both_merge,
    no_empty_commits: a_late_merge_brings_the_same_bytes,
    nothing_accepted_is_lost: a_late_reset_destroys_what_was_accepted_since,
}
EXAMPLES = [
    pytest.param(promise, example, id=promise.__name__) for promise, example in NOT_PROMISED.items()
]


def test_the_examples_are_exactly_what_soft_leaves_out():
    assert set(NOT_PROMISED) == set(ATOMIC_STORE) - set(EVERY_STORE)


@pytest.mark.parametrize(("promise", "example"), EXAMPLES)
def test_soft_without_conditional_updates_breaks(stage_for, promise, example):
    stage = stage_for("lakefs")
    example(stage)
    assert stage.breaks(promise)


@pytest.mark.parametrize(("promise", "example"), EXAMPLES)
def test_soft_still_keeps_the_rest(stage_for, promise, example):
    stage = stage_for("lakefs")
    example(stage)
    collect_leftovers(stage)
    assert not [holds for holds in (*EVERY_STORE, *AT_THE_END) if stage.breaks(holds)]


@pytest.mark.parametrize(("promise", "example"), EXAMPLES)
def test_the_atomic_store_keeps_everything(stage_for, promise, example):
    stage = stage_for("atomic")
    late = example(stage)
    collect_leftovers(stage)
    assert not late.report.completed
    assert not [holds for holds in (*ATOMIC_STORE, *AT_THE_END) if stage.breaks(holds)]


def test_a_merge_on_the_wrong_parent_is_reported_as_a_failure_that_says_where_it_landed(stage_for):
    stage = stage_for("lakefs")
    late = a_late_merge_lands_on_the_retrys_commit(stage)
    assert not late.report.completed
    assert late.report.reason.startswith("wrong_landing: the merge landed as " + stage.bench.head)


# --- the windows that the fences close on every store ---------------------------------------------


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
@pytest.mark.parametrize("body", [write_own_file, write_nothing], ids=["changed", "no-op"])
def test_a_zombie_that_reads_the_head_late_does_not_take_its_retrys_commit_for_abandoned(
    stage_for, semantics, body
):
    stage = stage_for(semantics)
    stage.bench.start(write_own_file, follow)
    zombie = stage.worker_at("fence2.passed" if body is write_own_file else "fence1.passed", body)
    stage.lease_runs_out()
    assert stage.schedule.deliver(write_own_file).finish().accepted
    late = zombie.finish()
    assert late.report.reason.startswith("stale_attempt")
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
@pytest.mark.parametrize("place", ["publish.head_read", "publish.decided"])
def test_a_reset_that_was_only_decided_on_does_not_destroy_what_was_accepted_since(
    stage_for, semantics, place
):
    stage = stage_for(semantics)
    stage.bench.start(write_own_file, follow)
    stage.worker_at("publish.sent").crash()
    stage.lease_runs_out()
    zombie = stage.worker_at(place)
    stage.lease_runs_out()
    assert stage.schedule.deliver(write_own_file).finish().accepted
    assert not zombie.finish().report.completed
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


SAME_WORKER, ANOTHER = "worker-1", "worker-2"


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
@pytest.mark.parametrize("worker_id", [ANOTHER, SAME_WORKER])
@pytest.mark.parametrize("first_at", [None, "body.done", "fence1.passed", "staging.committed"])
def test_of_a_task_delivered_twice_only_the_last_delivery_passes_a_fence(
    stage_for, semantics, worker_id, first_at
):
    stage = stage_for(semantics)
    run = stage.bench.start(write_own_file)
    first = stage.schedule.deliver(write_own_file)
    if first_at:
        first.run_to(first_at)
    second = stage.schedule.deliver_again(first, worker_id=worker_id)
    second.run_to("publish.decided")
    superseded = first.finish()
    assert superseded.report.reason.startswith("superseded")
    assert stage.bench.queue.get(run).status is RunStatus.RUNNING
    assert second.finish().accepted
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
@pytest.mark.parametrize("body", [write_own_file, write_nothing], ids=["changed", "no-op"])
@pytest.mark.parametrize("published_by", ["publish.sent", "publish.done", "report.ready"])
def test_of_a_task_delivered_twice_the_last_one_leaves_what_the_first_published_to_its_report(
    stage_for, semantics, body, published_by
):
    stage = stage_for(semantics)
    run = stage.bench.start(write_own_file)
    first = stage.worker_at(published_by)
    published = stage.bench.head
    second = stage.schedule.deliver_again(first, body)
    assert second.finish().report.reason.startswith("twin_published")
    assert stage.bench.queue.get(run).status is RunStatus.RUNNING
    assert first.finish().accepted
    assert stage.bench.head == published
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
def test_where_the_first_died_after_publishing_a_retry_replaces_what_it_left(stage_for, semantics):
    stage = stage_for(semantics)
    stage.bench.start(write_own_file)
    first = stage.worker_at("report.ready")
    abandoned = stage.bench.head
    second = stage.schedule.deliver_again(first)
    first.crash()
    assert not second.finish().accepted
    stage.lease_runs_out()
    assert stage.schedule.deliver(write_own_file).finish().published.replaced == abandoned
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
@pytest.mark.parametrize("place", ["publish.head_read", "publish.decided"])
def test_a_reset_that_was_only_decided_on_is_not_made_once_the_task_is_delivered_again(
    stage_for, semantics, place
):
    stage = stage_for(semantics)
    stage.bench.start(write_own_file)
    stage.worker_at("publish.sent").crash()
    stage.lease_runs_out()
    first = stage.worker_at(place)
    second = stage.schedule.deliver_again(first)
    second.run_to("publish.done")
    assert first.finish().report.reason.startswith(("superseded", "twin_published"))
    assert second.finish().accepted
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("abandoned", [False, True], ids=["merge", "replacement"])
def test_of_two_deliveries_that_publish_at_once_the_loser_does_not_speak_for_the_task(
    stage_for, abandoned, winner
):
    stage = stage_for("atomic")
    stage.bench.start(write_own_file)
    if abandoned:
        stage.worker_at("publish.sent").crash()
        stage.lease_runs_out()
    first = stage.worker_at("publish.cleared")
    second = stage.schedule.deliver_again(first)
    second.run_to("publish.cleared")
    racers = [first, second]
    won = racers.pop(winner)
    won.run_to("publish.sent")
    assert racers[0].finish().report.reason.startswith("twin_published")
    assert won.finish().accepted
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


# --- and one that stays open on every store -------------------------------------------------------


@pytest.mark.parametrize("semantics", ["atomic", "lakefs"])
def test_a_straggler_of_a_cancelled_run_may_take_back_the_unaccepted_head_a_new_run_began_from(
    stage_for, semantics
):
    """A new run that changed nothing left no trace on the branch for the straggler to notice."""
    stage = stage_for(semantics)
    cancelled = stage.bench.start(write_own_file)
    stage.worker_at("publish.sent").crash()
    stage.lease_runs_out()
    straggler = stage.worker_at("publish.cleared")
    stage.bench.queue.cancel(cancelled, "a person wanted it")

    stage.bench.start(write_nothing)
    assert stage.schedule.deliver(write_nothing).finish().accepted
    assert straggler.finish().report.completed

    ((_, ref),) = accepted(stage.bench)
    assert ref not in stage.bench.history()
    assert ref not in accepted_publications(stage.bench)
    assert not [holds for holds in ATOMIC_STORE if stage.breaks(holds)]


def collect_leftovers(stage):
    for leftover in leftovers(stage.bench.attempts):
        collect(stage.bench.store, leftover)
