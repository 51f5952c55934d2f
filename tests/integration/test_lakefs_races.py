"""Writers on a real lakeFS that all read H == A, and then all publish.

``-rP`` shows the counts.
"""

from __future__ import annotations

import secrets

import pytest
from support.lakefs import store_on
from support.racing import Counts, race

from perago.operations.fence_install import install_fence

WRITERS = 4
ROUNDS = 25
BRANCHES = [f"branch-{number}" for number in range(8)]
ALL_ROUNDS = ROUNDS * len(BRANCHES)
ALL_MERGES = ALL_ROUNDS * WRITERS


@pytest.fixture
def open_store(lakefs_server):
    def opened():
        return store_on(lakefs_server)

    return opened


@pytest.fixture
def run_race(open_store, tmp_path, record_property):
    """200 rounds and more in a repository of its own, on branches that start at its main one."""

    def run(*, fenced):
        store, repository = open_store(), f"races-{secrets.token_hex(4)}"
        store.create_repository(repository)
        if fenced:
            install_fence(store, repository, "main")
        start = store.head(repository, "main")
        for branch in BRANCHES:
            store.create_branch(repository, branch, start.id)
        counts = race(open_store, tmp_path, repository, BRANCHES, writers=WRITERS, rounds=ROUNDS)
        print(f"{'with' if fenced else 'without'} the fence: {counts}")  # noqa: T201 - to be shown
        record_property("counts", str(counts))
        left = {branch.name for branch in store.branches(repository)}
        store.close()
        assert left == {"main", *BRANCHES}, "every staging branch is gone"
        return counts

    return run


@pytest.mark.slow
def test_with_the_fence_one_writer_lands_and_never_on_a_wrong_parent(run_race):
    assert run_race(fenced=True) == Counts(
        rounds=ALL_ROUNDS,
        merges=ALL_MERGES,
        landed=ALL_ROUNDS,
        refused=ALL_MERGES - ALL_ROUNDS,
    )


@pytest.mark.slow
def test_without_it_every_wrong_landing_is_detected_and_reported_as_failed(run_race):
    counts = run_race(fenced=False)
    assert (counts.rounds, counts.merges) == (ALL_ROUNDS, ALL_MERGES)
    assert counts.on_wrong_parent > 0, "nothing was raced"
    assert counts.detected == counts.on_wrong_parent
    assert counts.silent == 0
    assert counts.other == {}
