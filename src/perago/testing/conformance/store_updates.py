"""How a store's branches move, where stores may differ: mix in what yours promises.

Each goes beside :class:`perago.testing.conformance.store.StoreConformance`, or stands alone with a
``bench`` fixture of its own.
"""

# ruff: noqa: S101 - tests

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from perago.errors import HeadMovedError, StoreRefusedError

if TYPE_CHECKING:
    from perago.model.commit import Commit
    from perago.testing.conformance.store import StoreBench


class CanonicalTrees:
    """For stores whose trees are named by their content alone. lakeFS's aren't quite."""

    def test_equal_content_has_an_equal_tree_whatever_the_way_to_it(
        self, bench: StoreBench
    ) -> None:
        once = bench.commit("main", {"a": b"1", "b": b"2"})
        bench.commit("main", {"c": b"3", "a": b"other"}, deletes=["b"])
        again = bench.commit("main", {"b": b"2", "a": b"1"}, deletes=["c"])
        assert again.tree == once.tree
        assert again.id != once.id


class ConditionalMerges:
    """For repositories whose merges compare and swap."""

    def test_a_conditional_merge_is_applied_only_onto_the_expected_head(
        self, bench: StoreBench
    ) -> None:
        staged = bench.staged({"a": b"1"})
        other = bench.commit("main", {"b": b"2"})
        with pytest.raises(HeadMovedError):
            bench.merge(staged.id, expected_head=bench.root.id)
        assert bench.head == other
        assert bench.merge(staged.id, expected_head=other.id).is_only_child_of(other.id)

    def test_of_many_conditional_merges_onto_one_head_one_is_applied(
        self, bench: StoreBench
    ) -> None:
        staged = [bench.staged({f"file-{n}": b"1"}) for n in range(4)]

        def merge(commit: Commit) -> bool:
            try:
                bench.merge(commit.id, expected_head=bench.root.id)
            except HeadMovedError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(merge, staged)) == 1
        assert bench.head.is_only_child_of(bench.root.id)


class ConditionalRelocations:
    """For stores whose relocations compare and swap."""

    def test_a_conditional_relocation_is_applied_only_from_the_expected_head(
        self, bench: StoreBench
    ) -> None:
        staged = bench.staged({"a": b"1"})
        other = bench.commit("main", {"b": b"2"})
        with pytest.raises(HeadMovedError):
            bench.relocate(staged.id, expected_head=bench.root.id)
        assert bench.head == other
        bench.relocate(staged.id, expected_head=other.id)
        assert bench.head == staged


class ConditionalUpdates(ConditionalMerges, ConditionalRelocations):
    """For stores that compare and swap: mix it in beside :class:`StoreConformance`."""


class UnconditionalMerges:
    """For repositories whose merges can't."""

    def test_a_merge_on_a_condition_is_refused_and_not_sent_without(
        self, bench: StoreBench
    ) -> None:
        staged = bench.staged({"a": b"1"})
        with pytest.raises(StoreRefusedError):
            bench.merge(staged.id, expected_head=bench.root.id)
        assert bench.head == bench.root


class UnconditionalRelocations:
    """For stores whose relocations can't."""

    def test_a_relocation_on_a_condition_is_refused_and_not_sent_without(
        self, bench: StoreBench
    ) -> None:
        staged = bench.staged({"a": b"1"})
        with pytest.raises(StoreRefusedError):
            bench.relocate(staged.id, expected_head=bench.root.id)
        assert bench.head == bench.root


class UnconditionalUpdates(UnconditionalMerges, UnconditionalRelocations):
    """For stores that can't do either: mix it in beside :class:`StoreConformance`."""
