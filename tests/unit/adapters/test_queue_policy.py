"""The queue's rules, as tables."""

from __future__ import annotations

import pytest

from perago.adapters.embedded.queue.policy import (
    Consequence,
    Timing,
    input_for,
    may_start,
    next_deadline,
    overdue,
    retry_delay,
    run_status_after,
    step_after,
)
from perago.model.attempt import Attempt, TaskStatus
from perago.model.controls import ExecutionLimits, RetryPolicy, TimeoutPolicy
from perago.model.run import AttemptRecord, ResultField, RunPlan, RunRecord, RunStatus
from perago.testing.conformance.orchestrator_bench import step, workspace


@pytest.mark.parametrize(
    ("logic", "cap", "delays"),
    [
        ("FIXED", 0, [10, 10, 10, 10]),
        ("LINEAR_BACKOFF", 0, [10, 20, 30, 40]),
        ("EXPONENTIAL_BACKOFF", 0, [10, 20, 40, 80]),
        ("LINEAR_BACKOFF", 25, [10, 20, 25, 25]),
        ("EXPONENTIAL_BACKOFF", 25, [10, 20, 25, 25]),
        ("FIXED", 5, [5, 5, 5, 5]),
    ],
)
def test_the_delay_grows_by_its_logic_up_to_its_cap(logic, cap, delays):
    policy = RetryPolicy(logic=logic, delay_seconds=10, max_delay_seconds=cap)
    assert [retry_delay(policy, retry, spread=0.0) for retry in range(4)] == delays


def test_jitter_adds_up_to_its_milliseconds_on_top_of_the_cap():
    policy = RetryPolicy(delay_seconds=10, max_delay_seconds=5, jitter_ms=500)
    assert retry_delay(policy, 0, spread=0.0) == 5.0
    assert retry_delay(policy, 0, spread=0.5) == 5.25
    assert retry_delay(policy, 0, spread=1.0) == 5.5


@pytest.mark.parametrize(
    ("status", "retry_count", "expected"),
    [
        (TaskStatus.FAILED, 0, None),
        (TaskStatus.FAILED, 1, None),
        (TaskStatus.FAILED, 2, RunStatus.FAILED),
        (TaskStatus.FAILED, 7, RunStatus.FAILED),
        (TaskStatus.TIMED_OUT, 1, None),
        (TaskStatus.TIMED_OUT, 2, RunStatus.TIMED_OUT),
        (TaskStatus.FAILED_WITH_TERMINAL_ERROR, 0, RunStatus.FAILED),
    ],
)
def test_what_becomes_of_a_run_when_an_attempt_ends(status, retry_count, expected):
    retry = RetryPolicy(count=2)
    assert run_status_after(status, retry_count=retry_count, retry=retry) is expected


WAITING = Timing(due_at=100.0, chain_started_at=50.0)
RUNNING = Timing(due_at=100.0, chain_started_at=50.0, started_at=110.0, heard_at=120.0)


@pytest.mark.parametrize(
    ("timing", "timeout", "at", "consequence"),
    [
        (WAITING, {"poll_seconds": 30}, 130.0, Consequence.END_RUN),
        (WAITING, {"poll_seconds": 30, "policy": "RETRY"}, 130.0, Consequence.RETRY),
        (WAITING, {"poll_seconds": 30, "policy": "ALERT_ONLY"}, 130.0, Consequence.NOTE),
        (WAITING, {"total_seconds": 90, "policy": "ALERT_ONLY"}, 140.0, Consequence.END_RUN),
        (RUNNING, {"response_seconds": 5, "policy": "TIME_OUT_WF"}, 125.0, Consequence.RETRY),
        (RUNNING, {"response_seconds": 5, "policy": "ALERT_ONLY"}, 125.0, Consequence.RETRY),
        (RUNNING, {"seconds": 8, "response_seconds": 0}, 118.0, Consequence.END_RUN),
        (
            RUNNING,
            {"seconds": 8, "response_seconds": 0, "policy": "RETRY"},
            118.0,
            Consequence.RETRY,
        ),
        (
            RUNNING,
            {"seconds": 8, "response_seconds": 0, "policy": "ALERT_ONLY"},
            118.0,
            Consequence.NOTE,
        ),
        (RUNNING, {"total_seconds": 90, "policy": "RETRY"}, 140.0, Consequence.END_RUN),
    ],
)
def test_a_time_out_strikes_at_its_second_and_not_before(timing, timeout, at, consequence):
    policy = TimeoutPolicy(**timeout)
    assert overdue(timing, policy, at - 0.001) is None
    assert next_deadline(timing, policy, at - 0.001) == at
    struck = overdue(timing, policy, at)
    assert struck is not None
    assert struck.consequence is consequence


@pytest.mark.parametrize(
    ("timing", "timeout"),
    [
        (WAITING, {"response_seconds": 5, "seconds": 5}),
        (RUNNING, {"poll_seconds": 5}),
        (WAITING, {}),
        (RUNNING, {"response_seconds": 0}),
    ],
    ids=["waiting has no lease", "polled in time", "no limits", "no lease"],
)
def test_time_outs_that_do_not_apply_never_strike(timing, timeout):
    assert overdue(timing, TimeoutPolicy(**timeout), 700.0) is None


def test_of_several_passed_time_outs_the_gravest_counts():
    timeout = TimeoutPolicy(
        policy="ALERT_ONLY", seconds=5, response_seconds=5, total_seconds=1000, poll_seconds=1
    )
    assert overdue(RUNNING, timeout, 200.0).consequence is Consequence.RETRY
    assert overdue(RUNNING, timeout, 2000.0).consequence is Consequence.END_RUN


def test_a_time_out_names_the_setting_that_struck():
    struck = overdue(RUNNING, TimeoutPolicy(response_seconds=5), 200.0)
    assert "timeout.response_seconds=5" in struck.reason


@pytest.mark.parametrize(
    ("limits", "in_progress", "recently_polled", "expected"),
    [
        ({}, 99, 99, True),
        ({"concurrent_exec_limit": 2}, 1, 99, True),
        ({"concurrent_exec_limit": 2}, 2, 0, False),
        ({"concurrent_exec_limit": 0}, 99, 0, True),
        ({"rate_limit_per_frequency": 3, "rate_limit_frequency_in_seconds": 5}, 99, 2, True),
        ({"rate_limit_per_frequency": 3, "rate_limit_frequency_in_seconds": 5}, 0, 3, False),
        ({"rate_limit_per_frequency": 0, "rate_limit_frequency_in_seconds": 5}, 0, 99, True),
    ],
)
def test_limits_hold_tasks_back(limits, in_progress, recently_polled, expected):
    given = ExecutionLimits(**limits)
    assert may_start(given, in_progress=in_progress, recently_polled=recently_polled) is expected


def test_the_chain_is_followed_to_its_end():
    one, two = step("one"), step("two")
    plan = RunPlan("chain", "chains:chain", (one, two))
    assert step_after(plan, "one") is two
    assert step_after(plan, "two") is None


def test_only_completed_attempts_feed_later_steps():
    place = workspace("commit-a")
    one, two = step("one"), step("two", params={"n": ResultField("one", ("n",))})
    run = RunRecord(
        id="r",
        plan=RunPlan("chain", "chains:chain", (one, two)),
        status=RunStatus.RUNNING,
        created_at=0.0,
        updated_at=0.0,
        workspace=place,
        attempts=(
            _record(place, 0, TaskStatus.COMPLETED, "commit-b", 2),
            _record(place, 1, TaskStatus.TIMED_OUT, "commit-zombie", 1),
        ),
    )
    assert input_for(run, two) == {
        "workspace": place.moved_to("commit-b").model_dump(),
        "params": {"n": 2},
    }


def _record(place, retry_count, status, ref, n):
    return AttemptRecord(
        attempt=Attempt("r", "one", retry_count + 1, 0, f"t{retry_count}", retry_count, "one"),
        status=status,
        scheduled_at=0.0,
        due_at=0.0,
        output={"workspace": place.moved_to(ref).model_dump(), "result": {"n": n}},
    )
