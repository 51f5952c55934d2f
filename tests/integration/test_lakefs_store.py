"""A real lakeFS keeps the store port's contract, with the fence in the repository and without."""

from __future__ import annotations

import pytest
from support.lakefs import store_on

from perago.adapters.lakefs.cache import ObjectCache
from perago.adapters.lakefs.fence import FENCE_ACTION, FENCE_KEY
from perago.errors import StoreRefusedError
from perago.stack.test_server import start_lakefs
from perago.testing.conformance.store import StoreBench, StoreConformance
from perago.testing.conformance.store_updates import (
    ConditionalMerges,
    UnconditionalRelocations,
    UnconditionalUpdates,
)


@pytest.fixture
def store(lakefs_server, tmp_path):
    store = store_on(lakefs_server, cache=ObjectCache(tmp_path / "cache", limit_bytes=1 << 30))
    yield store
    store.close()


class TestLakeFSStore(StoreConformance, UnconditionalUpdates):
    atomic = False


class TestFencedLakeFSStore(ConditionalMerges, UnconditionalRelocations):
    @pytest.fixture
    def bench(self, store, tmp_path):
        directory = tmp_path / "files"
        directory.mkdir()
        bench = StoreBench(store, directory)
        bench.root = bench.commit("main", {FENCE_KEY: FENCE_ACTION})
        return bench

    def test_the_store_says_that_only_merges_are_atomic(self, bench):
        says = bench.store.atomicity(bench.repository, bench.root.id)
        assert (says.cas_merge, says.cas_relocate) == (True, False)
        assert says.shortcoming is None

    def test_a_merge_that_expects_nothing_is_refused_by_the_server_itself(self, bench):
        staged = bench.staged({"a": b"1"})
        with pytest.raises(StoreRefusedError, match="carries no perago"):
            bench.merge(staged.id)
        assert bench.head == bench.root

    @pytest.mark.parametrize("text", [FENCE_ACTION + b"\n", FENCE_ACTION[:-1]])
    def test_only_a_byte_identical_fence_counts(self, bench, text):
        changed = bench.staged({FENCE_KEY: text})
        says = bench.store.atomicity(bench.repository, changed.id)
        assert not says.cas_merge
        assert "no fence" in says.shortcoming

    def test_probing_leaves_no_branch_behind(self, bench):
        assert bench.store.probe_fence(bench.repository, bench.root.id)
        assert [branch.name for branch in bench.store.branches(bench.repository)] == ["main"]


def test_where_the_server_runs_no_actions_the_fence_does_not_count(lakefs_binaries, tmp_path):
    with start_lakefs(tmp_path / "server", config={"actions": {"enabled": False}}) as server:
        store = store_on(server)
        directory = tmp_path / "files"
        directory.mkdir()
        bench = StoreBench(store, directory)
        fenced = bench.commit("main", {FENCE_KEY: FENCE_ACTION})
        assert not store.probe_fence(bench.repository, fenced.id)
        says = store.atomicity(bench.repository, fenced.id)
        assert not says.cas_merge
        assert "doesn't run actions" in says.shortcoming
        store.close()
