"""Controls: defaults, ranges, and what a wrong one says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TaskDefinitionError,
    TimeoutPolicy,
)
from perago.model.controls import budget_warnings


def budget(**changes):
    seconds = {
        "observed_merge_p99_seconds": 5,
        "safety_margin_seconds": 5,
        "lakefs_merge_timeout_seconds": 30,
        "conductor_completion_timeout_seconds": 15,
        "worker_shutdown_grace_seconds": 60,
        "heartbeat_interval_seconds": 30,
    }
    return PublishBudget(**{**seconds, **changes})


def test_a_task_without_controls_is_retried_three_times_and_leased_for_ten_minutes():
    controls = TaskControls()
    assert controls.retry == RetryPolicy(
        count=3, logic="FIXED", delay_seconds=60, max_delay_seconds=0, jitter_ms=0
    )
    assert controls.timeout == TimeoutPolicy(
        policy="TIME_OUT_WF", seconds=0, response_seconds=600, poll_seconds=0, total_seconds=0
    )
    assert controls.limits == ExecutionLimits(
        concurrent_exec_limit=None,
        rate_limit_frequency_in_seconds=None,
        rate_limit_per_frequency=None,
    )
    assert controls.publish_budget is None


@pytest.mark.parametrize(
    ("declare", "message", "fix"),
    [
        (lambda: RetryPolicy(count=11), "count can't be 11", "from 0 to 10 (default 3)"),
        (lambda: RetryPolicy(count=-1), "count can't be -1", "from 0 to 10"),
        (lambda: RetryPolicy(count=True), "count can't be True", "a whole number"),
        (lambda: RetryPolicy(delay_seconds=1.5), "delay_seconds can't be 1.5", "a whole number"),
        (lambda: RetryPolicy(delay_seconds="9 s"), "can't be '9 s'", "a whole number"),
        (lambda: RetryPolicy(logic="LINEAR"), "logic can't be 'LINEAR'", "'LINEAR_BACKOFF'"),
        (lambda: RetryPolicy(counts=3), "has no argument 'counts'", "did you mean 'count'?"),
        (lambda: RetryPolicy(3), "keyword arguments only", "write RetryPolicy(count=3)"),
        (lambda: TimeoutPolicy(seconds=-1), "seconds can't be -1", "0 or more"),
        (
            lambda: TimeoutPolicy(seconds=10, response_seconds=20),
            "response_seconds (20) is longer than seconds (10)",
            "response_seconds=10 or less",
        ),
        (
            lambda: TimeoutPolicy(seconds=900, total_seconds=600),
            "longer than total_seconds (600)",
            "total_seconds=900 or more",
        ),
        (
            lambda: ExecutionLimits(rate_limit_per_frequency=5),
            "rate_limit_frequency_in_seconds is None",
            "or leave both out",
        ),
        (lambda: TaskControls(publish_budget=30), "can't be 30", "a PublishBudget(…)"),
        (lambda: TaskControls(retry={"counts": 3}), "RetryPolicy has no argument", "'count'?"),
        (PublishBudget, "needs the argument 'observed_merge_p99_seconds'", "seconds"),
        (lambda: budget(heartbeat_interval_seconds=0), "can't be 0", "1 or more"),
        (
            lambda: budget(lakefs_merge_timeout_seconds=9),
            "observed_merge_p99_seconds + safety_margin_seconds = 10",
            "lakefs_merge_timeout_seconds=10 or more",
        ),
    ],
)
def test_a_wrong_control_is_refused_with_its_fix(declare, message, fix):
    with pytest.raises(TaskDefinitionError) as refused:
        declare()
    assert message in refused.value.message
    assert fix in refused.value.fix


def test_a_whole_number_may_be_written_as_a_float_or_as_text():
    assert RetryPolicy(delay_seconds=90.0, count="2") == RetryPolicy(delay_seconds=90, count=2)
    assert TimeoutPolicy(seconds="120") == TimeoutPolicy(seconds=120)
    assert ExecutionLimits(concurrent_exec_limit="4").concurrent_exec_limit == 4


def test_parts_of_the_controls_may_be_written_as_mappings():
    written = TaskControls(retry={"count": 1}, timeout={"seconds": 60}, publish_budget=None)
    assert written == TaskControls(retry=RetryPolicy(count=1), timeout=TimeoutPolicy(seconds=60))


def test_controls_never_change():
    controls = TaskControls()
    with pytest.raises(ValueError, match="frozen"):
        controls.retry = RetryPolicy(count=0)


def test_a_shorter_time_out_shortens_the_default_lease_with_it():
    assert TimeoutPolicy(seconds=120).response_seconds == 120
    assert TimeoutPolicy(seconds=3600).response_seconds == 600


def test_a_publish_needs_room_for_the_merge_the_completion_and_the_margin():
    assert budget().publish_seconds == 30 + 15 + 5


def test_a_lease_can_be_sized_by_the_budget():
    assert budget().response_timeout_seconds == 30 + 15 + 60 + 30


def test_without_a_lease_the_default_budget_is_not_shortened():
    assert PublishBudget.default_for(0) == PublishBudget.default_for(600) == budget()


@given(st.integers(min_value=4, max_value=2000))
def test_a_default_budget_takes_at_most_half_its_lease_and_beats_three_times_in_it(lease):
    default = PublishBudget.default_for(lease)
    assert default.publish_seconds <= lease / 2
    assert default.heartbeat_interval_seconds <= lease / 3
    assert budget_warnings(TaskControls(timeout=TimeoutPolicy(response_seconds=lease))) == []


def test_a_lease_shorter_than_the_budget_and_a_heartbeat_is_warned_about():
    short = TaskControls(timeout=TimeoutPolicy(response_seconds=79), publish_budget=budget())
    enough = TaskControls(timeout=TimeoutPolicy(response_seconds=80), publish_budget=budget())
    (warning,) = budget_warnings(short)
    assert "response_seconds=79" in warning
    assert "response_seconds=80 or more" in warning
    assert budget_warnings(enough) == []
