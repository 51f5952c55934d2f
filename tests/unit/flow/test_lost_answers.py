"""A request whose answer was lost is neither success nor failure until it is read back."""

from __future__ import annotations

import pytest

from perago.errors import RuntimeConfigError
from perago.flow.publish import MERGE_SENDINGS
from perago.model.attempt import TaskStatus
from perago.model.outcome import PublishPath
from perago.testing.faulty_store import (
    FaultyStore,
    after,
    duplicate,
    followed_by,
    healthy,
    lose_answer,
    lose_request,
    refuse,
    refuse_after_applying,
    unavailable,
)


@pytest.fixture
def run(edits, no_edits):
    """One attempt on a store with these faults, all of which must have come up."""

    def attempt(stage, *, changes=True, fence="auto", **faults):
        store = FaultyStore(stage.bench.store, faults)
        outcome = stage.attempt(edits if changes else no_edits, store=store, fence=fence)
        assert store.spared == {}
        stage.assert_nothing_left()
        return outcome, store

    return attempt


def assert_published(stage, outcome, path):
    assert outcome.accepted
    assert outcome.report.completed
    assert outcome.published.path is path
    assert stage.bench.history()[:2] == [outcome.published.ref, stage.A]


def assert_unknown(stage, outcome):
    assert outcome.report.status is TaskStatus.FAILED
    assert outcome.report.reason.startswith("publish_unknown: unknown whether")
    assert outcome.report.output == {}


# --- the merge ------------------------------------------------------------------------------------


def test_a_merge_that_was_applied_is_found_and_counts_as_published(stage, run):
    outcome, store = run(stage, merge=[lose_answer])
    assert_published(stage, outcome, PublishPath.MERGED)
    assert store.calls.count("merge") == 1


def test_the_evidence_goes_into_the_log(stage, run):
    outcome, _ = run(stage, merge=[lose_answer])
    evidence = stage.journal.of("publish.read_back")
    assert evidence["found"] == evidence["head"] == outcome.published.ref
    assert "dropped" in evidence["answer"]


def test_a_refusal_that_follows_our_own_success_counts_as_published(stage, run):
    outcome, _ = run(stage, merge=[refuse_after_applying])
    assert_published(stage, outcome, PublishPath.MERGED)


def test_a_merge_proven_absent_is_sent_again_at_cas(atomic, run):
    outcome, store = run(atomic, merge=[lose_request, lose_request])
    assert_published(atomic, outcome, PublishPath.MERGED)
    assert store.calls.count("merge") == 3
    assert atomic.journal.of("publish.read_back")["proven_absent"] is True


def test_but_only_so_often(atomic, run):
    outcome, store = run(atomic, merge=[lose_request] * MERGE_SENDINGS)
    assert_unknown(atomic, outcome)
    assert store.calls.count("merge") == MERGE_SENDINGS
    assert atomic.bench.head == atomic.A


def test_a_copy_applied_after_it_was_proven_absent_is_not_published_twice_at_cas(atomic, run):
    late = []

    def keep_for_later(send):
        late.append(send)
        return lose_request(send)

    def deliver_it_late():
        late.pop()()

    outcome, _ = run(atomic, merge=[keep_for_later, after(deliver_it_late)])
    assert_published(atomic, outcome, PublishPath.MERGED)


@pytest.mark.parametrize("store", ["lakefs_like", "atomic"])
def test_a_merge_proven_absent_is_unknown_at_soft_and_not_sent_again(request, run, store):
    stage = request.getfixturevalue(store)
    outcome, store = run(stage, fence="soft", merge=[lose_request])
    assert_unknown(stage, outcome)
    assert store.calls.count("merge") == 1
    assert stage.bench.head == stage.A
    assert stage.A in outcome.report.reason
    assert stage.journal.of("stage.commit")["commit"] in outcome.report.reason


def test_a_merge_delivered_twice_is_published_once_at_cas(atomic, run):
    outcome, _ = run(atomic, merge=[duplicate])
    assert_published(atomic, outcome, PublishPath.MERGED)


def test_a_merge_delivered_twice_at_soft_is_told_as_a_wrong_landing(lakefs_like, run):
    outcome, _ = run(lakefs_like, merge=[duplicate])
    assert "wrong_landing" in outcome.report.reason
    assert outcome.report.output == {}


def test_a_lost_merge_found_on_a_wrong_parent_is_a_wrong_landing(lakefs_like, run):
    foreign = []
    outcome, _ = run(
        lakefs_like,
        merge=[after(lambda: foreign.append(lakefs_like.someone_writes()), lose_answer)],
    )
    assert "wrong_landing" in outcome.report.reason
    assert foreign[0] in outcome.report.reason
    assert lakefs_like.bench.head in outcome.report.reason


def test_a_lost_merge_is_found_below_a_later_foreign_commit(stage, run):
    outcome, _ = run(stage, merge=[followed_by(stage.someone_writes)])
    assert outcome.report.completed
    assert stage.bench.history()[1:3] == [outcome.published.ref, stage.A]


@pytest.mark.parametrize("fault", [lose_request, refuse])
def test_a_branch_that_no_longer_reaches_the_input_proves_nothing(stage, run, fault):
    def reset_to_the_root():
        root = stage.bench.history()[-1]
        stage.bench.store.relocate("bench", "main", root, expected_head=None)

    outcome, _ = run(stage, merge=[after(reset_to_the_root, fault)])
    assert_unknown(stage, outcome)
    assert stage.journal.of("publish.read_back")["proven_absent"] is False


def test_a_lost_merge_absent_below_a_foreign_head_is_unknown_and_not_sent_again(stage, run):
    outcome, store = run(stage, merge=[after(stage.someone_writes, lose_request)])
    assert_unknown(stage, outcome)
    assert store.calls.count("merge") == 1
    assert stage.bench.head in outcome.report.reason


def test_a_definite_refusal_is_a_refusal(stage, run):
    outcome, _ = run(stage, merge=[refuse])
    assert "publish_fence: the merge was refused: the server refused the request" in (
        outcome.report.reason
    )
    assert stage.bench.head == stage.A


@pytest.mark.parametrize("merge", [lose_answer, lose_request, refuse_after_applying])
def test_when_reading_back_fails_too_it_is_unknown(stage, run, merge):
    outcome, _ = run(stage, merge=[merge], history=[unavailable])
    assert_unknown(stage, outcome)
    assert "reading back failed" in outcome.report.reason


def test_an_unknown_publication_is_met_by_the_retry_as_an_abandoned_head(stage, edits):
    step = stage.declare(edits)
    stage.bench.start(step)
    faults = {"merge": [lose_answer], "history": [unavailable]}
    first = stage.again(step, store=FaultyStore(stage.bench.store, faults))
    assert_unknown(stage, first)
    retry = stage.again(step)
    assert_published(stage, retry, PublishPath.REPLACED)


# --- the reset ------------------------------------------------------------------------------------

RESETS = pytest.mark.parametrize(
    ("changes", "path"),
    [(True, PublishPath.REPLACED), (False, PublishPath.RELOCATED_BACK)],
    ids=["to C", "to A"],
)


@RESETS
@pytest.mark.parametrize("fault", [lose_answer, refuse_after_applying])
def test_a_lost_reset_is_done_when_the_head_is_there(stage, run, changes, path, fault):
    stage.someone_writes()
    outcome, _ = run(stage, changes=changes, relocate=[fault])
    assert outcome.accepted
    assert outcome.published.path is path
    assert stage.bench.head == outcome.published.ref


@RESETS
def test_a_lost_reset_is_unknown_when_the_head_is_elsewhere(stage, run, changes, path):
    head = stage.someone_writes()
    outcome, store = run(stage, changes=changes, relocate=[lose_request])
    assert_unknown(stage, outcome)
    assert head in outcome.report.reason
    assert store.calls.count("relocate") == 1


@RESETS
def test_a_refused_reset_is_a_refusal(stage, run, changes, path):
    head = stage.someone_writes()
    outcome, _ = run(stage, changes=changes, relocate=[refuse])
    assert "publish_fence" in outcome.report.reason
    assert stage.bench.head == head


@RESETS
def test_a_reset_that_cannot_be_read_back_is_unknown(stage, run, changes, path):
    stage.someone_writes()
    # Before an unconditional reset the head is looked at twice.
    looks = 1 if stage.bench.semantics == "atomic" else 2
    heads = [healthy] * looks + [unavailable]
    outcome, _ = run(stage, changes=changes, relocate=[lose_answer], head=heads)
    assert_unknown(stage, outcome)


# --- everything before ----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["create_branch", "upload", "delete_objects", "commit"])
@pytest.mark.parametrize("fault", [lose_answer, lose_request, refuse, unavailable])
def test_a_staging_step_without_an_answer_fails_and_leaves_nothing(stage, run, method, fault):
    outcome, store = run(stage, **{method: [fault]})
    assert outcome.report.status is TaskStatus.FAILED
    assert outcome.report.output == {}
    assert stage.bench.head == stage.A
    assert "merge" not in store.calls


@pytest.mark.parametrize("method", ["get_commit", "list_objects", "download", "atomicity", "head"])
def test_a_read_without_an_answer_fails_and_leaves_nothing(stage, run, method):
    outcome, store = run(stage, **{method: [unavailable]})
    assert outcome.report.status is TaskStatus.FAILED
    assert "store_unavailable" in outcome.report.reason
    assert "merge" not in store.calls
    assert stage.bench.head == stage.A


def test_something_else_on_the_staging_branch_is_noticed(stage, run):
    def squeeze_in():
        (staging,) = stage.bench.staging_branches()
        stage.bench.write({"smuggled": "in"}, branch=staging)

    outcome, _ = run(stage, upload=[after(squeeze_in)])
    assert "is not the only child of" in outcome.report.reason
    assert stage.bench.head == stage.A


def test_a_fault_on_a_method_no_store_has_would_test_nothing(atomic):
    with pytest.raises(RuntimeConfigError, match="no method 'marge'"):
        FaultyStore(atomic.bench.store, {"marge": [lose_answer]})
