"""A race on the embedded store: the same writers, and the same judge, as on a real server."""

from __future__ import annotations

import pytest
from support.racing import Counts, race

from perago.adapters.embedded.store import EmbeddedStore
from perago.model.attempt import TaskStatus
from perago.model.commit import Commit
from perago.model.outcome import AttemptOutcome, TaskReport


@pytest.fixture
def race_on(tmp_path):
    """A race of 3 writers, 4 rounds on each of two branches; its counts."""

    def run(semantics):
        def open_store():
            return EmbeddedStore(tmp_path / "store", semantics=semantics, durable=False)

        store = open_store()
        root = store.create_repository("races", default_branch="one")
        store.create_branch("races", "two", root.id)
        counts = race(open_store, tmp_path, "races", ["one", "two"], writers=3, rounds=4)
        assert {branch.name for branch in store.branches("races")} == {"one", "two"}
        store.close()
        return counts

    return run


def test_a_store_that_compares_and_swaps_lets_one_writer_through(race_on):
    counts = race_on("atomic")
    assert counts == Counts(rounds=8, merges=24, landed=8, refused=16)


def test_a_store_that_does_not_has_every_wrong_landing_reported(race_on):
    counts = race_on("lakefs")
    assert counts == Counts(rounds=8, merges=24, landed=24, on_wrong_parent=16, detected=16)


def test_a_wrong_landing_reported_as_a_success_would_be_counted():
    counts = Counts()
    commit = Commit("c2", ("c1",), "tree", "", {"perago.execution_id": "e"}, 0.0)
    completed = AttemptOutcome("e", TaskReport(TaskStatus.COMPLETED), accepted=True)
    counts.add("c0", [commit], [completed])
    assert (counts.on_wrong_parent, counts.detected, counts.silent) == (1, 0, 1)


def test_an_attempt_that_never_got_to_its_merge_is_not_taken_for_a_refused_one():
    counts = Counts()
    report = TaskReport(TaskStatus.FAILED, reason="BrokenBarrierError")
    counts.add("c0", [], [AttemptOutcome("e", report, accepted=True)])
    assert (counts.refused, dict(counts.other)) == (0, {"BrokenBarrierError": 1})
