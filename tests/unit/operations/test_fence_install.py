"""The fence is put on a branch as a commit of its own, once, whatever the network does."""

import pytest

from perago.errors import (
    BranchNotFoundError,
    HeadMovedError,
    PublishUnknownError,
    RunError,
    WrongLandingError,
)
from perago.operations.fence_install import FENCE_COMMIT_KEY, install_fence
from perago.testing import Bench
from perago.testing.faulty_store import (
    FaultyStore,
    lose_answer,
    lose_request,
    refuse_after_applying,
)
from perago.wiring import fence_file

KEY, ACTION = fence_file()


@pytest.fixture(params=["atomic", "lakefs"])
def bench(request, tmp_path):
    made = Bench(tmp_path / "bench", semantics=request.param)
    made.write({"a.txt": "a"})
    yield made
    made.close()


def _install(bench, store=None, **more):
    return install_fence(store or bench.store, bench.repository, bench.branch, **more)


def test_it_is_a_commit_on_the_head_that_changes_nothing_else(bench):
    head = bench.head
    done = _install(bench)
    assert (bench.head, done.replaced) == (done.commit.id, False)
    assert done.commit.parents == (head,)
    assert FENCE_COMMIT_KEY in done.commit.metadata
    assert bench.read() == {"a.txt": b"a", KEY: ACTION}
    assert bench.staging_branches() == []


def test_a_second_installation_makes_no_commit(bench):
    first = _install(bench)
    second = _install(bench)
    assert (second.commit, second.head.id) == (None, first.commit.id)
    assert bench.head == first.commit.id


def test_another_version_is_replaced_and_it_is_told(bench):
    bench.write({KEY: "# an older one"})
    done = _install(bench)
    assert (done.replaced, done.commit.message) == (True, "replace the perago fence")
    assert bench.read()[KEY] == ACTION


def test_a_branch_that_isnt_there_isnt_made(bench):
    with pytest.raises(BranchNotFoundError):
        install_fence(bench.store, bench.repository, "nowhere")


def test_a_last_minute_refusal_leaves_the_branch_as_it_was(bench):
    def refuse():
        raise RunError("a run has started")

    head = bench.head
    with pytest.raises(RunError):
        _install(bench, before_publishing=refuse)
    assert bench.head == head
    assert bench.staging_branches() == []


def test_a_head_that_moved_meanwhile_is_never_reported_as_success(bench):
    refused = HeadMovedError if bench.semantics == "atomic" else WrongLandingError
    with pytest.raises(refused):
        _install(bench, before_publishing=lambda: bench.write({"theirs": "x"}))
    assert bench.read()["theirs"] == b"x"


@pytest.mark.parametrize("fault", [lose_answer, refuse_after_applying])
def test_a_merge_that_landed_counts_though_its_answer_was_lost(bench, fault):
    done = _install(bench, FaultyStore(bench.store, {"merge": [fault]}))
    assert bench.head == done.commit.id
    assert bench.staging_branches() == []


def test_a_merge_that_cant_be_found_is_unknown(bench):
    head = bench.head
    with pytest.raises(PublishUnknownError, match="fence installation"):
        _install(bench, FaultyStore(bench.store, {"merge": [lose_request]}))
    assert bench.head == head
    assert bench.staging_branches() == []


def test_a_staging_branch_made_without_an_answer_is_removed(bench):
    with pytest.raises(Exception, match="dropped"):
        _install(bench, FaultyStore(bench.store, {"create_branch": [lose_answer]}))
    assert bench.staging_branches() == []
