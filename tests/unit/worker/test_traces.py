"""An attempt as a trace, seen through the real SDK."""

import re
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from perago.model.attempt import Attempt, AttemptStep, Execution, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    ExecutorLost,
    StepEnded,
    StepStarted,
)
from perago.worker.traces import SPAN_FIELDS, TracesObserver

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
ATTEMPT = Attempt("wf", "ref", 1, 0, "task-id", 2, "songs.clean")
EXECUTION = Execution(ATTEMPT, "0" * 32)
STEPS = [
    *("validate", "directory", "fetch", "pre", "body", "post", "fence1"),
    *("stage.branch", "stage.upload", "stage.commit", "fence2", "publish", "report"),
]


class Traced:
    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.watcher = TracesObserver(self._provider.get_tracer("test"))

    @property
    def spans(self):
        """In the order they began; the attempt's own is the first."""
        ended = self._exporter.get_finished_spans()
        return sorted(ended, key=lambda span: (span.start_time, span.parent is not None))

    def close(self):
        self._provider.shutdown()


@pytest.fixture
def traced():
    traced = Traced()
    yield traced
    traced.close()


def test_an_attempt_is_one_trace_with_a_span_for_each_step(traced, attempt_under):
    attempt_under(traced.watcher)
    attempt, *steps = traced.spans
    assert attempt.name == "attempt watched.write"
    assert attempt.parent is None
    assert [step.name for step in steps] == STEPS
    assert {step.parent.span_id for step in steps} == {attempt.context.span_id}
    assert {step.context.trace_id for step in steps} == {attempt.context.trace_id}


def test_steps_lie_within_their_attempt_one_after_the_other(traced, attempt_under):
    attempt_under(traced.watcher)
    attempt, *steps = traced.spans
    assert attempt.start_time <= steps[0].start_time
    assert steps[-1].end_time <= attempt.end_time
    assert all(one.end_time <= next_.start_time for one, next_ in pairwise(steps))


def test_a_step_took_as_long_as_its_event_says(traced):
    traced.watcher.observe(AttemptStarted(EXECUTION))
    event = {"step": "body", "at": "2999-01-01T00:00:10.500+00:00", "seconds": 2.25}
    traced.watcher.observe(StepEnded(ATTEMPT, event))
    traced.watcher.observe(AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.COMPLETED))
    body = next(span for span in traced.spans if span.name == "body")
    assert body.end_time - body.start_time == 2_250_000_000


def test_the_attempts_span_says_whose_it_is(traced, attempt_under, bench):
    ref = bench.head
    attempt = attempt_under(traced.watcher)
    span = traced.spans[0]
    assert dict(span.attributes) | {"perago.execution.id": ""} == {
        "perago.task.name": "watched.write",
        "perago.workflow.id": attempt.workflow_instance_id,
        "perago.task.reference": attempt.reference_task_name,
        "perago.task.id": attempt.task_id,
        "perago.task.seq": attempt.seq,
        "perago.task.iteration": 0,
        "perago.task.retry": 0,
        "perago.execution.id": "",
        "perago.workspace.repository": "bench",
        "perago.workspace.branch": "main",
        "perago.workspace.ref": ref,
        "perago.attempt.status": "COMPLETED",
        "perago.attempt.accepted": True,
    }
    assert span.attributes["perago.execution.id"]
    assert span.status.status_code is StatusCode.UNSET


def test_the_publishing_span_says_what_was_published_and_how(traced, attempt_under, bench):
    attempt_under(traced.watcher)
    publish = next(span for span in traced.spans if span.name == "publish")
    assert publish.attributes["perago.publish.ref"] == bench.head
    assert publish.attributes["perago.publish.path"] == "merged"
    assert publish.attributes["perago.publish.level"] == "cas"


def test_what_is_said_between_steps_is_an_event_of_the_attempt(traced, attempt_under):
    attempt_under(traced.watcher)
    (decided,) = [e for e in traced.spans[0].events if e.name == "publish.decided"]
    assert decided.attributes["perago.publish.decided.move"] == "merge"


def test_a_failed_step_and_its_attempt_have_the_code_of_the_error(traced, attempt_under):
    attempt_under(traced.watcher, fail=True)
    spans = {span.name: span for span in traced.spans}
    for span in (spans["attempt watched.write"], spans["body"]):
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == span.status.description == "task_failed"
    assert spans["report"].status.status_code is StatusCode.UNSET


def test_neither_params_nor_an_errors_words_get_into_a_trace(traced, attempt_under):
    attempt_under(traced.watcher, fail=True)
    assert traced.spans
    assert not [span.name for span in traced.spans if "hunter2" in span.to_json()]


def test_the_step_at_which_an_executor_died_ends_with_the_attempt(traced):
    traced.watcher.observe(AttemptStarted(EXECUTION))
    traced.watcher.observe(StepStarted(ATTEMPT, AttemptStep.BODY))
    traced.watcher.observe(ExecutorLost(ATTEMPT, "was ended by SIGKILL"))
    traced.watcher.observe(
        AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.FAILED, reason="executor_lost: …")
    )
    attempt, body = traced.spans
    assert (body.name, body.end_time) == ("body", attempt.end_time)
    assert body.attributes["error.type"] == attempt.attributes["error.type"] == "executor_lost"


@pytest.mark.parametrize(
    "ended",
    [
        AttemptEnded(ATTEMPT, Ending.NOT_ACCEPTED, TaskStatus.COMPLETED),
        AttemptEnded(ATTEMPT, Ending.LEASE_LOST),
        AttemptEnded(ATTEMPT, Ending.GIVEN_BACK),
    ],
)
def test_only_an_accepted_completion_is_no_error(traced, ended):
    traced.watcher.observe(AttemptStarted(EXECUTION))
    traced.watcher.observe(ended)
    (attempt,) = traced.spans
    assert attempt.status.status_code is StatusCode.ERROR
    assert attempt.attributes["perago.attempt.accepted"] is False


def test_news_of_an_attempt_that_was_never_started_is_ignored(traced):
    traced.watcher.observe(StepStarted(ATTEMPT, AttemptStep.BODY))
    traced.watcher.observe(StepEnded(ATTEMPT, {"step": "body", "seconds": 1.0}))
    traced.watcher.observe(AttemptEnded(ATTEMPT, Ending.LEASE_LOST))
    assert traced.spans == []


# --- the reference page ---------------------------------------------------------------------------


def _listed():
    _, _, traces = PAGE.read_text(encoding="utf-8").partition("## Traces")
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", traces, re.MULTILINE)
    return {name: set(re.findall(r"`([^`]+)`", attributes)) for name, attributes in rows}


def test_the_page_lists_exactly_what_spans_may_have(traced, attempt_under):
    attempt_under(traced.watcher)
    listed = _listed()
    assert listed.pop("attempt TASK") == set(traced.spans[0].attributes)
    assert listed == {
        step: {f"perago.{step}.{field}" for field in fields} for step, fields in SPAN_FIELDS.items()
    }


def test_a_real_attempts_spans_have_what_the_page_says(traced, attempt_under):
    attempt_under(traced.watcher)
    listed = _listed()
    only_sometimes = {"perago.publish.replaced"}
    for span in traced.spans[1:]:
        assert set(span.attributes) == listed.get(span.name, set()) - only_sometimes
