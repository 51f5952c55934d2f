"""The fences as tables: pure decisions, every row and every field."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perago.errors import (
    LeaseTooShortError,
    PublishFenceError,
    SecondWriterError,
    StaleAttemptError,
    SupersededError,
    TwinPublishedError,
)
from perago.flow.fences import (
    Move,
    assert_current_attempt_snapshot,
    assert_lease_covers,
    assert_not_a_twins,
    assert_only_writer,
    decide,
    reason_not_to_replace,
    resolve_level,
)
from perago.model.attempt import Attempt, AttemptSnapshot, Delivery, Execution, TaskStatus
from perago.model.commit import Atomicity, Commit
from perago.model.controls import PublishBudget
from perago.model.outcome import PublishLevel
from perago.model.workspace import WorkspaceRef

ATTEMPT = Attempt("run-1", "clean", 2, 0, "task-1", 1, "songs.clean")
DELIVERY = Delivery(ATTEMPT, {}, "worker-1", 60.0, poll_count=2)
NOW = AttemptSnapshot(TaskStatus.IN_PROGRESS, "run-1", "task-1", 1, 2, "worker-1")
ME = Execution(ATTEMPT, "0" * 32)
TWIN = Execution(ATTEMPT, "1" * 32)


def commit(name, *parents, metadata=None):
    return Commit(name, parents, f"tree of {name}", "", metadata or {}, 0.0)


@pytest.mark.parametrize(
    ("head", "changed", "unchanged"),
    [
        (commit("A", "before"), Move.MERGE, Move.NOTHING),
        (commit("A"), Move.MERGE, Move.NOTHING),
        (commit("H", "A"), Move.REPLACE, Move.RELOCATE_BACK),
        (commit("H", "B"), Move.REFUSE, Move.REFUSE),
        (commit("H", "A", "B"), Move.REFUSE, Move.REFUSE),
        (commit("H", "B", "A"), Move.REFUSE, Move.REFUSE),
        (commit("H", "A", "A"), Move.REFUSE, Move.REFUSE),
        (commit("root"), Move.REFUSE, Move.REFUSE),
    ],
    ids=[
        "H is A",
        "H is A, the root",
        "A is H's only parent",
        "H's parent is another",
        "H merges A with another",
        "H merges another with A",
        "A twice is not A only",
        "H has no parent",
    ],
)
def test_the_publish_table(head, changed, unchanged):
    assert decide(head, "A", changed=True) is changed
    assert decide(head, "A", changed=False) is unchanged


@pytest.mark.parametrize("worker_id", ["worker-1", None])
def test_a_delivery_the_orchestrator_counts_on_passes(worker_id):
    assert_current_attempt_snapshot(DELIVERY, replace(NOW, worker_id=worker_id))


@pytest.mark.parametrize(
    ("now", "message"),
    [
        *(
            (replace(NOW, status=status), f"status is {status} (was IN_PROGRESS)")
            for status in TaskStatus
            if status is not TaskStatus.IN_PROGRESS
        ),
        (replace(NOW, workflow_instance_id="run-2"), "workflow instance is run-2 (was run-1)"),
        (replace(NOW, task_id="task-2"), "task id is task-2 (was task-1)"),
        (replace(NOW, retry_count=2), "retry count is 2 (was 1)"),
        (replace(NOW, is_latest=False), "a newer attempt has taken its place"),
    ],
)
def test_any_field_that_moved_makes_the_attempt_stale(now, message):
    with pytest.raises(StaleAttemptError) as refused:
        assert_current_attempt_snapshot(DELIVERY, now)
    assert message in refused.value.message
    assert "task-1 of clean" in refused.value.message
    assert not refused.value.silent


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (replace(NOW, poll_count=3, worker_id="worker-2"), "to worker-2 (delivery 3; "),
        (replace(NOW, poll_count=3), "to worker-1 (delivery 3; "),
        (replace(NOW, worker_id="worker-2"), "to worker-2 (delivery 2; "),
    ],
    ids=["to another worker", "to the same worker", "to another worker, uncounted"],
)
def test_a_task_that_was_delivered_again_supersedes_the_delivery_before(now, message):
    with pytest.raises(SupersededError) as refused:
        assert_current_attempt_snapshot(DELIVERY, now)
    assert message in refused.value.message
    assert "this is 2, to worker-1" in refused.value.message
    assert refused.value.silent


def test_an_attempt_that_ended_after_it_was_delivered_again_is_stale_and_says_so():
    now = replace(NOW, status=TaskStatus.TIMED_OUT, poll_count=3, worker_id="worker-2")
    with pytest.raises(StaleAttemptError, match="status is TIMED_OUT") as refused:
        assert_current_attempt_snapshot(DELIVERY, now)
    assert not refused.value.silent


def test_everything_that_moved_is_named_at_once():
    now = replace(NOW, status=TaskStatus.TIMED_OUT, retry_count=2)
    with pytest.raises(StaleAttemptError, match=r"status is TIMED_OUT .*, retry count is 2"):
        assert_current_attempt_snapshot(DELIVERY, now)


def reason(metadata, *, policy="any", was_accepted=False, touches_actions=False, uncommitted=()):
    return reason_not_to_replace(
        commit("H", "A", metadata=metadata),
        ME,
        policy=policy,
        was_accepted=was_accepted,
        touches_actions=touches_actions,
        uncommitted=uncommitted,
    )


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"perago.execution_id": TWIN.id},
        ME.metadata(),
        TWIN.metadata() | {"perago.retry_count": "0"},
        TWIN.metadata() | {"perago.task_id": "task-0"},
    ],
    ids=["not ours", "a stray id", "my own", "an earlier retry's", "another task's"],
)
def test_an_abandoned_head_may_be_replaced(metadata):
    assert reason(metadata) is None
    assert_not_a_twins(commit("H", "A", metadata=metadata), ME)


NAMELESS = {key: value for key, value in TWIN.metadata().items() if "execution" not in key}


@pytest.mark.parametrize(
    ("metadata", "who"), [(TWIN.metadata(), TWIN.id), (NAMELESS, "None")], ids=["named", "nameless"]
)
def test_what_another_execution_of_this_delivery_published_may_not(metadata, who):
    with pytest.raises(TwinPublishedError) as refused:
        assert_not_a_twins(commit("H", "A", metadata=metadata), ME)
    assert "H was published by another execution of this same delivery" in refused.value.message
    assert who in refused.value.message
    assert refused.value.silent


EARLIER = TWIN.metadata() | {"perago.task_id": "task-0", "perago.retry_count": "0"}


def test_under_own_what_the_same_step_published_may_be_replaced():
    assert reason(EARLIER, policy="own") is None


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        EARLIER | {"perago.workflow_instance_id": "run-0"},
        EARLIER | {"perago.reference_task_name": "rank"},
        EARLIER | {"perago.iteration": "1"},
    ],
    ids=["not ours", "another run's", "another step's", "another iteration's"],
)
def test_under_own_nothing_else_may(metadata):
    assert reason(metadata) is None
    assert "PERAGO_REPLACE=own" in reason(metadata, policy="own")


def test_the_result_of_an_accepted_task_may_not():
    assert "accepted result of task t" in reason({"perago.task_id": "t"}, was_accepted=True)


def test_what_a_person_imported_may_not():
    assert "person" in reason({"perago.import": "1"})


def test_a_head_that_touches_actions_may_not():
    assert "actions" in reason({}, touches_actions=True)


def test_a_branch_with_uncommitted_objects_may_not_and_names_them():
    assert "x, y" in reason({}, uncommitted=["x", "y"])


PLACE = WorkspaceRef(repository="songs", branch="main", ref_type="commit", ref="A")


@pytest.mark.parametrize("writers", [[], ["run-1"]], ids=["none known", "its own run"])
def test_a_run_may_write_a_branch_that_no_other_writes(writers):
    assert_only_writer(ATTEMPT, PLACE, writers)


def test_a_run_may_not_write_a_branch_that_others_write_too_and_these_are_named():
    with pytest.raises(SecondWriterError) as refused:
        assert_only_writer(ATTEMPT, PLACE, ["run-3", "run-1", "run-2"])
    assert refused.value.message == (
        "branch 'main' of 'songs' is written by another active workflow as well: run-2, run-3"
    )


CAS = Atomicity(cas_merge=True, cas_relocate=True)
NO_CAS = Atomicity(cas_merge=False, cas_relocate=False)
LIKE_LAKEFS_WITH_THE_ACTION = Atomicity(cas_merge=True, cas_relocate=False)


@pytest.mark.parametrize(
    ("requested", "found", "level"),
    [
        ("auto", [CAS], PublishLevel.CAS),
        ("auto", [LIKE_LAKEFS_WITH_THE_ACTION] * 2, PublishLevel.CAS),
        ("auto", [CAS, NO_CAS], PublishLevel.SOFT),
        ("auto", [NO_CAS, CAS], PublishLevel.SOFT),
        ("soft", [CAS, CAS], PublishLevel.SOFT),
        ("soft", [NO_CAS], PublishLevel.SOFT),
        ("cas", [CAS, CAS], PublishLevel.CAS),
    ],
)
def test_the_level_in_force_holds_at_every_commit_involved(requested, found, level):
    assert resolve_level(requested, found) is level


@pytest.mark.parametrize("found", [[NO_CAS], [CAS, NO_CAS], [NO_CAS, CAS]])
def test_cas_is_refused_where_it_is_not_to_be_had(found):
    with pytest.raises(PublishFenceError, match="PERAGO_PUBLISH_FENCE=cas") as refused:
        resolve_level("cas", found)
    assert "PERAGO_PUBLISH_FENCE=auto" in refused.value.fix


BUDGET = PublishBudget(
    observed_merge_p99_seconds=2,
    safety_margin_seconds=3,
    lakefs_merge_timeout_seconds=10,
    conductor_completion_timeout_seconds=7,
    worker_shutdown_grace_seconds=60,
    heartbeat_interval_seconds=5,
)


@pytest.mark.parametrize("remaining", [20, 20.5, math.inf])
def test_a_lease_that_covers_merge_completion_and_margin_is_enough(remaining):
    assert_lease_covers(BUDGET, remaining)


@pytest.mark.parametrize("remaining", [19.9, 0, -5])
def test_a_shorter_one_is_not(remaining):
    with pytest.raises(LeaseTooShortError, match="publishing may take 20 s") as refused:
        assert_lease_covers(BUDGET, remaining)
    assert "response_seconds" in refused.value.fix


@pytest.mark.parametrize("response_seconds", [0, 1, 2, 5, 7, 30.0, 45.0, 600.0, 86_400.0])
def test_every_lease_a_delivery_can_have_gets_a_default_budget(response_seconds):
    budget = PublishBudget.default_for(response_seconds)
    assert budget.publish_seconds > 0
