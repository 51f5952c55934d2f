"""The journal keeps how long the request took that moved the branch: budgets are sized by it."""

from __future__ import annotations

import pytest

from perago.testing.faulty_store import FaultyStore, after, lose_answer, lose_request, refuse


@pytest.fixture
def slow(stage):
    """A store whose answer to one kind of request takes some seconds, and no other's does."""

    def made(method, *faults):
        pauses = [
            after(lambda seconds=seconds: stage.bench.clock.advance(seconds), *then)
            for seconds, *then in faults
        ]
        return FaultyStore(stage.bench.store, {method: pauses})

    return made


def test_a_merge_s_duration_is_the_request_s_own(stage, edits, slow):
    stage.attempt(edits, store=slow("merge", (2.5,)), faults={"publish.sent": stage.time_out})
    event = stage.journal.of("publish")
    assert event["merge_seconds"] == 2.5
    assert event["seconds"] > 600
    assert event["lease_seconds"] == 600


def test_a_reset_s_duration_counts_as_well(stage, edits, slow):
    stage.someone_writes()
    outcome = stage.attempt(edits, store=slow("relocate", (1.25,)))
    assert outcome.published.path == "replaced"
    assert stage.journal.of("publish")["merge_seconds"] == 1.25


def test_a_branch_that_was_not_moved_took_no_time_to_move(stage, no_edits):
    stage.attempt(no_edits)
    assert "merge_seconds" not in stage.journal.of("publish")


def test_a_lost_answer_counts_with_the_time_it_was_waited_for(stage, edits, slow):
    outcome = stage.attempt(edits, store=slow("merge", (30, lose_answer)))
    assert outcome.report.completed
    assert stage.journal.of("publish")["merge_seconds"] == 30


def test_of_two_sendings_the_one_that_moved_the_branch_counts(atomic, edits):
    wait = atomic.bench.clock.advance
    faults = [after(lambda: wait(30), lose_request), after(lambda: wait(2))]
    atomic.attempt(edits, store=FaultyStore(atomic.bench.store, {"merge": faults}))
    assert atomic.journal.of("publish")["merge_seconds"] == 2


def test_a_failed_publication_says_how_long_it_took_to_be_refused(stage, edits, slow):
    stage.attempt(edits, store=slow("merge", (3, refuse)))
    event = stage.journal.of("publish")
    assert (event["error"], event["merge_seconds"]) == ("publish_fence", 3)
