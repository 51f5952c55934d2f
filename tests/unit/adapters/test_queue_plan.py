"""A plan survives its way into the queue and back, whatever its params hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from perago.adapters.embedded.queue.rows import decode_plan, encode_plan
from perago.model.controls import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TimeoutPolicy,
)
from perago.model.run import ResultField, RunPlan
from perago.testing.conformance.orchestrator_bench import step

CONTROLS = TaskControls(
    retry=RetryPolicy(count=7, logic="LINEAR_BACKOFF", jitter_ms=20),
    timeout=TimeoutPolicy(policy="RETRY", seconds=90, response_seconds=30),
    limits=ExecutionLimits(concurrent_exec_limit=2),
    publish_budget=PublishBudget.default_for(60),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
result_fields = st.builds(
    ResultField, st.text(min_size=1), st.lists(st.text(), max_size=3).map(tuple)
)


@given(params=st.dictionaries(st.text(), json_values | result_fields, max_size=4))
def test_a_plan_survives_the_round_trip(params):
    plan = RunPlan(
        "songs", "songs:pipeline", (replace(step("rank", params=params), controls=CONTROLS),)
    )
    assert decode_plan(encode_plan(plan)) == plan


def test_a_literal_that_looks_like_an_encoded_reference_stays_a_literal():
    disguised = {"result_of": "ingest", "path": ["songs"]}
    plan = RunPlan("songs", "songs:pipeline", (step("rank", params={"x": disguised}),))
    assert decode_plan(encode_plan(plan)).steps[0].params == {"x": disguised}
