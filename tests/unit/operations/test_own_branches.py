"""On a shared server, a run takes place on branches this home made, and on no others."""

import json

import pytest

from perago.errors import AnswerLostError, CommitNotFoundError, RuntimeConfigError
from perago.operations.own_branches import OwnBranches
from perago.testing import Bench
from perago.testing.faulty_store import FaultyStore, after, lose_answer, lose_request


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "bench")
    made.write({"a.txt": "a"})
    yield made
    made.close()


@pytest.fixture
def own(tmp_path):
    return OwnBranches(tmp_path / "claims", "http://lakefs.example")


def _names(bench):
    return [branch.name for branch in bench.store.branches(bench.repository)]


def test_a_branch_somebody_else_made_is_refused_and_the_fix_is_a_new_one(bench, own):
    with pytest.raises(RuntimeConfigError, match="not this home's to run on") as refused:
        own.head_or_new(bench.store, bench.repository, bench.branch)
    assert "--branch NAME" in refused.value.fix


def test_a_missing_branch_is_made_where_it_was_asked_for_and_is_ours_from_then_on(bench, own):
    made = own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    assert made.id == bench.head
    assert own.head_or_new(bench.store, bench.repository, "mine") == made


def test_a_missing_repository_is_made_and_its_branch_is_ours(bench, own):
    made = own.head_or_new(bench.store, "new-one", "main")
    assert own.head_or_new(bench.store, "new-one", "main") == made
    assert made.parents == ()


def test_another_home_doesnt_share_the_branch(bench, own, tmp_path):
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    other = OwnBranches(tmp_path / "other", "http://lakefs.example")
    with pytest.raises(RuntimeConfigError, match="didn't make it"):
        other.head_or_new(bench.store, bench.repository, "mine")


def test_the_same_branch_of_another_server_isnt_ours(bench, own, tmp_path):
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    elsewhere = OwnBranches(tmp_path / "claims", "http://other.example")
    with pytest.raises(RuntimeConfigError, match="didn't make it"):
        elsewhere.head_or_new(bench.store, bench.repository, "mine")


def test_whoever_is_quicker_keeps_the_branch(bench, own):
    def somebody_else():
        bench.store.create_branch(bench.repository, "mine", bench.head)

    store = FaultyStore(bench.store, {"create_branch": [after(somebody_else)]})
    with pytest.raises(RuntimeConfigError, match="somebody else made it"):
        own.head_or_new(store, bench.repository, "mine", start_at=bench.branch)
    with pytest.raises(RuntimeConfigError, match="didn't make it"):
        own.head_or_new(bench.store, bench.repository, "mine")


def test_a_branch_whose_making_was_cut_off_is_not_taken_for_ours(bench, own):
    store = FaultyStore(bench.store, {"create_branch": [lose_answer]})
    with pytest.raises(AnswerLostError):
        own.head_or_new(store, bench.repository, "mine", start_at=bench.branch)
    with pytest.raises(RuntimeConfigError, match="was cut off") as refused:
        own.head_or_new(bench.store, bench.repository, "mine")
    assert bench.head in refused.value.message
    assert "delete" in refused.value.fix


def test_a_branch_that_was_never_made_can_be_made_again(bench, own):
    store = FaultyStore(bench.store, {"create_branch": [lose_request]})
    with pytest.raises(AnswerLostError):
        own.head_or_new(store, bench.repository, "mine", start_at=bench.branch)
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    assert "mine" in _names(bench)


def test_a_repository_made_anew_under_the_same_name_isnt_the_one_we_made(bench, own, tmp_path):
    own.head_or_new(bench.store, "new-one", "main")
    (claim,) = (tmp_path / "claims").iterdir()
    was = json.loads(claim.read_text())
    claim.write_text(json.dumps(was | {"began_at": "0" * 64}))
    with pytest.raises(RuntimeConfigError, match="made anew"):
        own.head_or_new(bench.store, "new-one", "main")


def test_a_claim_cut_short_is_a_no(bench, own, tmp_path):
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    (claim,) = (tmp_path / "claims").iterdir()
    claim.write_text(claim.read_text()[:20])
    with pytest.raises(RuntimeConfigError, match="didn't make it"):
        own.head_or_new(bench.store, bench.repository, "mine")


def test_a_start_that_doesnt_exist_leaves_nothing(bench, own):
    with pytest.raises(CommitNotFoundError):
        own.head_or_new(bench.store, bench.repository, "mine", start_at="nowhere")
    assert "mine" not in _names(bench)
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
