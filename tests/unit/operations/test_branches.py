"""On a shared server, a run takes place on branches this home made, and on no others."""

import pytest
from support import one_attempt

from perago.errors import AnswerLostError, CommitNotFoundError, RuntimeConfigError
from perago.operations.branches import OwnBranches
from perago.operations.import_export import import_directory
from perago.operations.run_start import StartingPoint, start_run
from perago.testing import Bench, ManualClock
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
    with pytest.raises(RuntimeConfigError, match="didn't create it"):
        other.head_or_new(bench.store, bench.repository, "mine")


def test_the_same_branch_of_another_server_isnt_ours(bench, own, tmp_path):
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    elsewhere = OwnBranches(tmp_path / "claims", "http://other.example")
    with pytest.raises(RuntimeConfigError, match="didn't create it"):
        elsewhere.head_or_new(bench.store, bench.repository, "mine")


def test_whoever_is_quicker_keeps_the_branch(bench, own):
    def another_process():
        bench.store.create_branch(bench.repository, "mine", bench.head)

    store = FaultyStore(bench.store, {"create_branch": [after(another_process)]})
    with pytest.raises(RuntimeConfigError, match="another process created it at the same moment"):
        own.head_or_new(store, bench.repository, "mine", start_at=bench.branch)
    with pytest.raises(RuntimeConfigError, match="didn't create it"):
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
    wiped = Bench(
        tmp_path / "wiped", repository="new-one", clock=ManualClock(bench.clock.now() + 1)
    )
    with pytest.raises(RuntimeConfigError, match="created again"):
        own.head_or_new(wiped.store, "new-one", "main")
    wiped.close()


def test_a_branch_made_anew_from_before_ours_began_isnt_ours(bench, own):
    before = bench.head
    bench.write({"a.txt": "more"})
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    _make_anew(bench, "mine", before)
    with pytest.raises(RuntimeConfigError, match="created again") as refused:
        own.head_or_new(bench.store, bench.repository, "mine")
    assert "--from-head" not in refused.value.fix


def _make_anew(bench, branch, at):
    """What somebody else does who likes the name, too."""
    bench.store.delete_branch(bench.repository, branch)
    bench.store.create_branch(bench.repository, branch, at)
    bench.write({"theirs.txt": "theirs"}, branch=branch)


@pytest.fixture
def completed(bench, own, monkeypatch):
    """A run of one task that published on ``mine``, a branch of ours; starts another one there."""
    monkeypatch.setenv("BODY", "change")
    bench.write(one_attempt.BEFORE)
    plan = one_attempt.matrix.plan({})

    def start(**more):
        point = StartingPoint(bench.repository, "mine", start_at=bench.branch, **more)
        return start_run(bench.queue, bench.store, plan, point, own=own)

    run = start()
    assert bench.attempt(one_attempt.work).accepted
    assert bench.queue.get(run).output_ref == bench.store.head(bench.repository, "mine").id
    return start


def test_a_branch_without_what_our_last_run_published_isnt_ours(bench, completed):
    _make_anew(bench, "mine", bench.branch)
    with pytest.raises(RuntimeConfigError, match="where the last run ended") as refused:
        completed()
    assert "--from-head" in refused.value.fix
    assert bench.queue.active_on(bench.repository, "mine") is None
    theirs = bench.store.head(bench.repository, "mine").id
    accepted = bench.queue.get(completed(from_head=True))
    assert accepted.workspace.ref == theirs, "a person said so"


def test_what_others_add_to_a_branch_of_ours_doesnt_make_it_theirs(bench, completed):
    bench.write({"more.txt": "more"}, branch="mine")
    assert bench.queue.get(completed()).workspace.ref == bench.store.head("bench", "mine").id


# --- importing ------------------------------------------------------------------------------------


def _import(bench, own, directory, branch, repository=None):
    import_directory(
        bench.store,
        repository=repository or bench.repository,
        branch=branch,
        directory=directory,
        start_at=None if repository else bench.branch,
        own=own,
    )


@pytest.fixture
def songs(tmp_path):
    (tmp_path / "songs").mkdir()
    (tmp_path / "songs" / "one.txt").write_text("one")
    return tmp_path / "songs"


def test_what_an_import_makes_is_ours(bench, own, songs):
    _import(bench, own, songs, "mine")
    _import(bench, own, songs, "main", repository="new-one")
    for repository, branch in ((bench.repository, "mine"), ("new-one", "main")):
        head = bench.store.head(repository, branch)
        assert own.head_or_new(bench.store, repository, branch) == head


def test_a_branch_of_somebody_elses_can_be_imported_to_and_stays_theirs(bench, own, songs):
    _import(bench, own, songs, bench.branch)
    assert bench.read() == {"one.txt": b"one"}
    with pytest.raises(RuntimeConfigError, match="didn't create it"):
        own.head_or_new(bench.store, bench.repository, bench.branch)


def test_a_claim_cut_short_is_a_no(bench, own, tmp_path):
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
    (claim,) = (tmp_path / "claims").iterdir()
    claim.write_text(claim.read_text()[:20])
    with pytest.raises(RuntimeConfigError, match="didn't create it"):
        own.head_or_new(bench.store, bench.repository, "mine")


def test_a_start_that_doesnt_exist_leaves_nothing(bench, own):
    with pytest.raises(CommitNotFoundError):
        own.head_or_new(bench.store, bench.repository, "mine", start_at="nowhere")
    assert "mine" not in _names(bench)
    own.head_or_new(bench.store, bench.repository, "mine", start_at=bench.branch)
