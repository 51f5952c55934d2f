"""Every row of the publish table, on the real embedded store, at both levels."""

from __future__ import annotations

import pytest

from perago.flow import validate
from perago.model.attempt import TaskStatus
from perago.model.outcome import PublishPath
from perago.testing.faulty_store import FaultyStore, after


def output_ref(outcome):
    return outcome.report.output["workspace"]["ref"]


def test_a_change_is_merged_onto_the_input_commit(stage, edits, edited):
    outcome = stage.attempt(edits)
    assert (outcome.report.status, outcome.accepted) == (TaskStatus.COMPLETED, True)
    assert outcome.published.path is PublishPath.MERGED
    assert output_ref(outcome) == stage.bench.head
    assert stage.bench.history()[:2] == [output_ref(outcome), stage.A]
    assert stage.bench.read() == edited
    stage.assert_nothing_left()


def test_the_output_names_the_workspace_in_full_and_carries_the_result(stage, edits):
    outcome = stage.attempt(edits)
    assert outcome.report.output == {
        "workspace": stage.bench.workspace().model_dump(),
        "result": {"note": "ok"},
    }
    assert outcome.report.reason is None
    assert outcome.changed == ("drop", "edit", "new")


def test_an_abandoned_head_is_replaced_and_leaves_the_history(stage, edits, edited):
    step = stage.declare(edits)
    stage.bench.start(step)
    abandoned = stage.again(step, faults={"report.ready": stage.time_out})
    assert abandoned.report.completed
    assert not abandoned.accepted

    retry = stage.again(step)
    assert retry.accepted
    assert retry.published.path is PublishPath.REPLACED
    assert retry.published.replaced == abandoned.published.ref
    assert stage.bench.history()[:2] == [output_ref(retry), stage.A]
    assert abandoned.published.ref not in stage.bench.history()
    assert stage.bench.read() == edited
    stage.assert_nothing_left()


def test_the_replacement_is_the_staging_commit_itself(stage, edits):
    stage.someone_writes()
    outcome = stage.attempt(edits)
    assert output_ref(outcome) == stage.journal.of("stage.commit")["commit"]


def test_no_change_on_an_unmoved_branch_touches_nothing(stage, no_edits):
    before = stage.bench.history()
    outcome = stage.attempt(no_edits)
    assert outcome.accepted
    assert outcome.published.path is PublishPath.UNCHANGED
    assert output_ref(outcome) == stage.A
    assert stage.bench.history() == before
    assert not any(step.startswith("stage.") for step in stage.journal.steps())


def test_no_change_on_an_abandoned_head_relocates_back_to_the_input(stage, no_edits):
    abandoned = stage.someone_writes()
    outcome = stage.attempt(no_edits)
    assert outcome.accepted
    assert outcome.published.path is PublishPath.RELOCATED_BACK
    assert outcome.published.replaced == abandoned
    assert output_ref(outcome) == stage.bench.head == stage.A


@pytest.mark.parametrize("changes", [True, False], ids=["changed", "nothing changed"])
def test_any_other_head_fails_closed(stage, edits, no_edits, changes):
    stage.someone_writes()
    stage.bench.write({"foreign": "twice"})
    before = stage.bench.history()
    outcome = stage.attempt(edits if changes else no_edits)
    assert outcome.report.status is TaskStatus.FAILED
    assert outcome.report.output == {}
    assert "publish_fence" in outcome.report.reason
    assert before[0] in outcome.report.reason
    assert "start a new run from the branch's present head" in outcome.report.reason
    assert stage.bench.history() == before
    stage.assert_nothing_left()


def test_a_branch_that_was_reset_below_the_input_fails_closed(stage, edits):
    root = stage.bench.history()[-1]
    stage.bench.store.relocate("bench", "main", root, expected_head=None)
    outcome = stage.attempt(edits)
    assert "publish_fence" in outcome.report.reason
    assert stage.bench.head == root


class Knowing:
    """An orchestrator that has accepted one more task than the bench's."""

    def __init__(self, queue, accepted):
        self._queue, self._accepted = queue, accepted

    def accepted_ref(self, task_id):
        return self._accepted.get(task_id)

    def __getattr__(self, name):
        return getattr(self._queue, name)


@pytest.mark.parametrize("accepted", [True, False])
def test_the_accepted_result_of_another_run_is_never_replaced(stage, edits, accepted):
    stage.bench.store.put_bytes("bench", "main", "later", b"1")
    head = stage.bench.store.commit(
        "bench", "main", message="a later run", metadata={"perago.task_id": "theirs"}
    )
    knowing = Knowing(stage.bench.queue, {"theirs": head.id if accepted else stage.A})
    outcome = stage.attempt(edits, orchestrator=knowing)
    if accepted:
        assert "it is the accepted result of task theirs" in outcome.report.reason
        assert stage.bench.head == head.id
    else:
        assert outcome.published.replaced == head.id


def test_a_head_that_touches_the_repositorys_actions_is_never_replaced(stage, edits):
    head = stage.bench.write({"_lakefs_actions/fence.yaml": "name: fence"})
    outcome = stage.attempt(edits)
    assert "it changes the repository's own actions" in outcome.report.reason
    assert stage.bench.head == head
    stage.assert_nothing_left()


def test_an_abandoned_head_under_uncommitted_objects_is_never_replaced(stage, edits):
    head = stage.someone_writes()
    stage.bench.store.put_bytes("bench", "main", "loose", b"uncommitted")
    outcome = stage.attempt(edits)
    assert "the branch has uncommitted objects: loose" in outcome.report.reason
    assert stage.bench.head == head


def test_uncommitted_objects_on_the_target_refuse_a_merge(stage, edits):
    stage.bench.store.put_bytes("bench", "main", "loose", b"uncommitted")
    outcome = stage.attempt(edits)
    assert outcome.report.status is TaskStatus.FAILED
    assert "loose" in outcome.report.reason
    assert stage.bench.head == stage.A
    stage.assert_nothing_left()


def test_a_foreign_commit_between_the_look_and_the_merge_is_never_built_upon_at_cas(atomic, edits):
    outcome = atomic.attempt(edits, faults={"publish.decided": atomic.someone_writes})
    assert "the merge was refused" in outcome.report.reason
    assert [c.message for c in atomic.bench.store.history("bench", "main", limit=1)] == ["outside"]
    atomic.assert_nothing_left()


def test_at_soft_that_merge_lands_and_the_attempt_says_where_and_how_to_recover(lakefs_like, edits):
    foreign = []
    outcome = lakefs_like.attempt(
        edits, faults={"publish.decided": lambda: foreign.append(lakefs_like.someone_writes())}
    )
    assert outcome.report.status is TaskStatus.FAILED
    assert "wrong_landing" in outcome.report.reason
    assert lakefs_like.bench.head in outcome.report.reason
    assert foreign[0] in outcome.report.reason
    assert "start a new run" in outcome.report.reason
    assert outcome.report.output == {}


def test_a_foreign_commit_just_before_a_replacement_survives_at_cas(atomic, edits):
    atomic.someone_writes()
    outcome = atomic.attempt(
        edits, faults={"publish.decided": lambda: atomic.bench.write({"later": "kept"})}
    )
    assert "replacing the abandoned head was refused" in outcome.report.reason
    assert atomic.bench.read()["later"] == b"kept"


def test_a_replacement_is_never_built_upon_what_somebody_wrote_meanwhile(
    lakefs_like, edits, monkeypatch
):
    """One that carries check results is a merge onto a private branch of the execution."""
    monkeypatch.setattr(validate, "check_tables", lambda *_: [{"path": "t"}])
    store = lakefs_like.bench.store

    def someone_writes_there():
        (trial,) = [b.name for b in store.branches("bench") if "-trial-" in b.name]
        lakefs_like.bench.write({"foreign": "never published"}, branch=trial)

    abandoned = lakefs_like.someone_writes()
    faulty = FaultyStore(store, {"merge": [after(someone_writes_there)]})
    outcome = lakefs_like.attempt(edits, store=faulty)
    assert faulty.spared == {}
    assert "isn't the staged state on top of" in outcome.report.reason
    assert lakefs_like.bench.head == abandoned
    lakefs_like.assert_nothing_left()


def test_only_objects_below_the_prefix_are_seen_and_changed(stage):
    ref = stage.bench.write({"songs/a": "1", "songs/b": "2", "songsbook/c": "3"})
    seen = []

    def body(workspace):
        seen.extend(sorted(p.name for p in workspace.rglob("*")))
        (workspace / "a").unlink()
        (workspace / "d").write_text("4")

    outcome = stage.attempt(body, input_ref=ref, spec={"prefix": "songs"})
    assert seen == ["a", "b"]
    assert outcome.changed == ("songs/a", "songs/d")
    assert stage.bench.read() == {
        "keep": b"kept",
        "edit": b"before",
        "drop": b"dropped",
        "songs/b": b"2",
        "songs/d": b"4",
        "songsbook/c": b"3",
    }


def test_the_repositorys_actions_are_not_projected_and_survive(stage):
    ref = stage.bench.write({"_lakefs_actions/fence.yaml": "name: fence"})

    def body(workspace):
        assert not (workspace / "_lakefs_actions").exists()
        (workspace / "keep").unlink()

    assert stage.attempt(body, input_ref=ref).accepted
    assert stage.bench.read()["_lakefs_actions/fence.yaml"] == b"name: fence"


def test_an_empty_workspace_can_be_filled_and_a_full_one_emptied(stage):
    def empty_it(workspace):
        for path in workspace.iterdir():
            path.unlink()

    assert stage.attempt(empty_it).accepted
    assert stage.bench.read() == {}
    filled = stage.attempt(
        lambda ws: (ws / "x").write_text("y") and None, input_ref=stage.bench.head
    )
    assert filled.accepted
    assert stage.bench.read() == {"x": b"y"}


@pytest.mark.parametrize(("fence", "level"), [("auto", None), ("soft", "soft")])
def test_the_level_in_force_is_in_the_log_of_a_success(stage, edits, fence, level):
    stage.attempt(edits, fence=fence)
    assert stage.journal.of("publish")["level"] == (level or stage.level)
    assert stage.journal.of("report")["level"] == (level or stage.level)


def test_the_level_in_force_is_in_the_log_of_a_refusal(stage, edits):
    stage.someone_writes()
    stage.bench.write({"foreign": "twice"})
    stage.attempt(edits)
    assert stage.journal.of("report")["level"] == stage.level


def test_cas_asked_for_where_it_is_not_to_be_had_refuses_to_publish(lakefs_like, edits):
    outcome = lakefs_like.attempt(edits, fence="cas")
    assert outcome.report.status is TaskStatus.FAILED
    assert "PERAGO_PUBLISH_FENCE=cas" in outcome.report.reason
    assert lakefs_like.bench.head == lakefs_like.A
    lakefs_like.assert_nothing_left()
