"""Faults meet the calls they were meant for, and everything else is the store's own answer."""

import pytest

from perago.errors import AnswerLostError, RuntimeConfigError
from perago.testing import Bench, FaultyStore
from perago.testing.faulty_store import healthy, lose_request


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.close()


def test_the_second_call_meets_the_second_fault(bench):
    store = FaultyStore(bench.store, {"repositories": [healthy, lose_request]})
    assert store.repositories() == ["bench"]
    assert store.spared == {"repositories": 1}
    with pytest.raises(AnswerLostError):
        store.repositories()
    assert store.repositories() == ["bench"]
    assert store.spared == {}
    assert store.calls == ["repositories"] * 3


def test_what_a_store_says_about_itself_is_no_request(bench):
    store = FaultyStore(bench.store, {})
    assert store.outlives_callers is bench.store.outlives_callers
    assert store.calls == []


@pytest.mark.parametrize("name", ["mrege", "outlives_callers", "__init__"])
def test_a_fault_that_could_never_come_up_is_refused(bench, name):
    with pytest.raises(RuntimeConfigError, match=f"no method '{name}'"):
        FaultyStore(bench.store, {name: [lose_request]})
