"""The embedded store keeps the store port's contract, in both of its modes."""

from __future__ import annotations

import pytest

from perago.adapters.embedded.store import EmbeddedStore
from perago.testing.conformance.store import StoreConformance
from perago.testing.conformance.store_updates import (
    CanonicalTrees,
    ConditionalUpdates,
    UnconditionalUpdates,
)


class TestEmbeddedStore(StoreConformance, CanonicalTrees, ConditionalUpdates):
    @pytest.fixture
    def store(self, tmp_path):
        store = EmbeddedStore(tmp_path / "store", durable=False)
        yield store
        store.close()


class TestEmbeddedStoreWithLakefsSemantics(StoreConformance, CanonicalTrees, UnconditionalUpdates):
    atomic = False

    @pytest.fixture
    def store(self, tmp_path):
        store = EmbeddedStore(tmp_path / "store", semantics="lakefs", durable=False)
        yield store
        store.close()
