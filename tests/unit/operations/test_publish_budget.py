"""A publish budget from what publications were seen to take."""

from __future__ import annotations

import pytest

from perago import PublishBudget, TaskControls, TimeoutPolicy
from perago.operations.publish_budget import Observations, advise, observe, percentile, propose

FULL = PublishBudget.default_for(0)


def published(seconds, *, task="songs.count", **fields):
    return {"step": "publish", "task": task, "merge_seconds": seconds, **fields}


def budget(**changed):
    return PublishBudget(**(FULL.model_dump() | changed))


# --- what was observed ----------------------------------------------------------------------------


def test_publications_are_gathered_by_task():
    found = observe(
        [
            published(0.2, lease_seconds=600.0),
            published(0.4, task="songs.total"),
            {"step": "fetch", "task": "songs.count", "seconds": 9.0},
            published(0.3),
            {"step": "report", "task": "songs.count", "seconds": 0.01},
        ]
    )
    assert found["songs.count"] == Observations([0.2, 0.3], [0.01], lease_seconds=600)
    assert found["songs.total"].merges == [0.4]


@pytest.mark.parametrize(
    "event",
    [
        {"step": "publish", "task": "songs.count", "path": "unchanged"},
        published(0.1, error="publish_fence"),
        published("0.1"),
        published(True),  # noqa: FBT003 - what a broken log may hold
        published(float("nan")),
        published(-1),
        {},
    ],
)
def test_what_did_not_move_a_branch_is_no_observation(event):
    assert observe([event]) == {}


def test_publications_to_another_store_say_nothing_about_this_one():
    events = [
        published(0.001, run="old"),
        published(0.002, run="here", store="embedded"),
        {"step": "report", "task": "songs.count", "run": "here", "seconds": 0.01},
        published(2.0, run="there", store="lakefs"),
        {"step": "report", "task": "songs.count", "run": "there", "seconds": 3.0},
    ]
    assert observe(events)["songs.count"] == Observations([0.001, 0.002], [0.01])
    assert observe(events, "lakefs")["songs.count"] == Observations([2.0], [3.0])


def test_a_publication_that_may_have_happened_counts_with_what_was_waited():
    found = observe(
        [published(30.0, error="publish_unknown"), published(0.2, error="wrong_landing")]
    )
    assert found["songs.count"].merges == [30.0, 0.2]
    assert found["songs.count"].unanswered == 1


@pytest.mark.parametrize(
    ("durations", "percent", "expected"),
    [
        ([7.0], 50, 7.0),
        ([7.0], 99, 7.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.0),
        ([float(n) for n in range(1, 101)], 99, 99.0),
        ([float(n) for n in range(1, 100)], 99, 99.0),
        ([float(n) for n in range(1, 201)], 99, 198.0),
    ],
)
def test_percentiles_are_durations_that_were_observed(durations, percent, expected):
    assert percentile(durations, percent) == expected


# --- what is proposed -----------------------------------------------------------------------------


def test_many_quick_publications_make_a_tight_budget():
    assert propose(Observations([0.2] * 100), FULL) == budget(
        observed_merge_p99_seconds=1,
        safety_margin_seconds=5,
        lakefs_merge_timeout_seconds=12,
    )


@pytest.mark.parametrize(("count", "margin"), [(100, 5), (99, 10), (10, 10), (9, 20), (1, 20)])
def test_fewer_observations_widen_the_margin(count, margin):
    assert propose(Observations([0.2] * count), FULL).safety_margin_seconds == margin


def test_one_slow_publication_among_many_is_not_cut_off():
    proposed = propose(Observations([1.0] * 199 + [80.0]), FULL)
    assert proposed.observed_merge_p99_seconds == 1
    assert proposed.lakefs_merge_timeout_seconds == 85


def test_what_merges_do_not_tell_stays_as_it_is_in_force():
    in_force = budget(
        conductor_completion_timeout_seconds=7,
        worker_shutdown_grace_seconds=300,
        heartbeat_interval_seconds=3,
    )
    proposed = propose(Observations([0.2] * 100, [0.1] * 100), in_force)
    assert proposed.conductor_completion_timeout_seconds == 7
    assert proposed.worker_shutdown_grace_seconds == 300
    assert proposed.heartbeat_interval_seconds == 3


def test_a_lease_lasts_for_three_heartbeats():
    proposed = propose(Observations([0.2] * 100), FULL, lease_seconds=60)
    assert proposed.heartbeat_interval_seconds == 20


def test_slow_reports_and_publications_raise_what_has_to_wait_for_them():
    proposed = propose(Observations([20.0] * 100, [10.0]), FULL)
    assert proposed.conductor_completion_timeout_seconds == 30
    assert proposed.worker_shutdown_grace_seconds == proposed.publish_seconds == 80 + 30 + 20


# --- what is wrong with the present one -----------------------------------------------------------


def test_a_task_that_declares_enough_gets_no_warning():
    controls = TaskControls(publish_budget=budget(observed_merge_p99_seconds=5))
    assert advise("songs.count", Observations([0.2] * 100), controls).warnings == ()


def test_few_observations_are_said_to_be_few():
    (warning,) = advise("songs.count", Observations([0.2] * 3, lease_seconds=600), None).warnings
    assert warning.startswith("only 3 observed")
    assert "4 times as wide" in warning


def test_unanswered_requests_are_said_to_have_taken_longer():
    (warning,) = advise("songs.count", Observations([0.2] * 100, unanswered=2), None).warnings
    assert warning.startswith("2 of them were never answered")


def test_a_declared_budget_below_what_was_observed_is_warned_about():
    controls = TaskControls(publish_budget=FULL)
    warnings = advise("songs.count", Observations([6.5] * 99 + [31.0] * 101), controls).warnings
    assert "observed_merge_p99_seconds=5 is below what was observed, 31.00 s" in warnings[0]
    assert "lakefs_merge_timeout_seconds=30 would have cut off" in warnings[1]


def test_a_lease_too_short_for_the_declared_budget_is_warned_about():
    controls = TaskControls(publish_budget=FULL, timeout=TimeoutPolicy(response_seconds=60))
    (warning,) = advise("songs.count", Observations([0.2] * 100), controls).warnings
    assert warning.startswith("with the declared budget, the lease")
    assert "write response_seconds=80 or more" in warning


def test_a_lease_too_short_for_the_proposed_budget_is_warned_about():
    controls = TaskControls(timeout=TimeoutPolicy(response_seconds=60))
    (warning,) = advise("songs.count", Observations([20.0] * 100), controls).warnings
    assert warning.startswith("with the proposed budget, the lease")


def test_without_a_declaration_the_lease_is_the_one_in_the_logs():
    advice = advise("songs.count", Observations([20.0] * 100, lease_seconds=60), None)
    assert (advice.lease_seconds, advice.declared) == (60, None)
    assert advice.warnings[0].startswith("with the proposed budget, the lease")


def test_a_lease_that_never_ends_is_long_enough():
    advice = advise("songs.count", Observations([500.0] * 100, lease_seconds=0), None)
    assert (advice.lease_seconds, advice.warnings) == (0, ())


def test_a_declared_task_without_publications_gets_no_proposal():
    advice = advise("songs.count", None, TaskControls())
    assert (advice.publications, advice.p99, advice.proposed, advice.warnings) == (
        0,
        None,
        None,
        (),
    )
