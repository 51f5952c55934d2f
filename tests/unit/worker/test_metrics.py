"""What a worker measures, seen through the real SDK, and whether the reference page says so."""

import re
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, Histogram, InMemoryMetricReader, Sum

from perago.errors import OrchestratorUnavailableError
from perago.model.attempt import Attempt, Execution, TaskStatus
from perago.worker.events import (
    AttemptEnded,
    AttemptStarted,
    Ending,
    ExecutorLost,
    HeartbeatAccepted,
    OrchestratorReachable,
    OrchestratorUnreachable,
    StepEnded,
)
from perago.worker.metrics import METRICS, MetricsObserver

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
KINDS = {Sum: "counter", Histogram: "histogram", Gauge: "gauge"}
ATTEMPT = Attempt("wf", "ref", 1, 0, "task-id", 0, "watched.write")
EXECUTION = Execution(ATTEMPT, "0" * 32)
TASK = {"perago.task.name": "watched.write"}


class Measured:
    """What a watcher's meter has measured so far, by name."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], shutdown_on_exit=False)
        self.watcher = MetricsObserver(self._provider.get_meter("test"))

    def metrics(self):
        (resource,) = self._reader.get_metrics_data().resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def points(self, name):
        metric = self.metrics().get(name)
        return metric.data.data_points if metric else []

    def value(self, name, attributes=None):
        """A counter's or gauge's value; 0 if it was never counted."""
        return next(
            (p.value for p in self.points(name) if p.attributes == (attributes or {})),
            0,
        )

    def close(self):
        self._provider.shutdown()


@pytest.fixture
def measured():
    measured = Measured()
    yield measured
    measured.close()


def test_an_attempt_is_counted_and_timed_with_its_status(measured, attempt_under):
    attempt_under(measured.watcher)
    status = TASK | {"perago.attempt.status": "COMPLETED"}
    assert measured.value("perago.attempts", status | {"perago.attempt.accepted": True}) == 1
    (duration,) = measured.points("perago.attempt.duration")
    assert duration.attributes == status
    assert 0 < duration.sum < 60


def test_a_publication_is_counted_by_level_and_path_and_its_merge_timed(measured, attempt_under):
    attempt_under(measured.watcher)
    how = {"perago.publish.level": "cas", "perago.publish.path": "merged"}
    assert measured.value("perago.publications", TASK | how) == 1
    (merge,) = measured.points("perago.merge.duration")
    assert (merge.attributes, merge.count) == (TASK, 1)


def test_every_step_is_timed(measured, attempt_under):
    attempt_under(measured.watcher)
    steps = {p.attributes["perago.step.name"] for p in measured.points("perago.step.duration")}
    assert steps == {
        *("validate", "directory", "fetch", "pre", "body", "post", "fence1"),
        *("stage.branch", "stage.upload", "stage.commit", "fence2", "publish", "report"),
    }


@pytest.mark.parametrize(("direction", "size"), [("fetch", 3), ("upload", 5)])
def test_what_was_moved_is_measured_each_way(measured, attempt_under, direction, size):
    attempt_under(measured.watcher)
    for name, amount in (("perago.transfer.size", size), ("perago.transfer.objects", 1)):
        (point,) = [
            p
            for p in measured.points(name)
            if p.attributes["perago.transfer.direction"] == direction
        ]
        assert (point.count, point.sum) == (1, amount)


def test_a_failed_step_is_counted_by_the_code_of_its_error(measured, attempt_under):
    attempt_under(measured.watcher, fail=True)
    failed = {"perago.step.name": "body", "error.type": "task_failed"}
    assert measured.value("perago.step.failures", TASK | failed) == 1
    assert measured.points("perago.publications") == []


def test_only_what_is_tried_again_is_a_retry(measured, attempt_under):
    attempt_under(measured.watcher, fail=True)
    assert measured.value("perago.retries", TASK) == 0
    attempt_under(measured.watcher, retry=True)
    assert measured.value("perago.retries", TASK) == 1


def test_a_report_that_was_not_accepted_is_counted_apart(measured):
    measured.watcher.observe(AttemptStarted(EXECUTION))
    measured.watcher.observe(AttemptEnded(ATTEMPT, Ending.NOT_ACCEPTED, TaskStatus.COMPLETED))
    refused = {"perago.attempt.status": "COMPLETED", "perago.attempt.accepted": False}
    assert measured.value("perago.attempts", TASK | refused) == 1


def test_a_lost_lease_is_counted_also_as_such(measured):
    measured.watcher.observe(AttemptStarted(EXECUTION))
    measured.watcher.observe(HeartbeatAccepted(ATTEMPT))
    measured.watcher.observe(AttemptEnded(ATTEMPT, Ending.LEASE_LOST, reason="it is TIMED_OUT"))
    assert measured.value("perago.leases.renewed", TASK) == 1
    assert measured.value("perago.leases.lost", TASK) == 1


def test_a_dead_executor_is_counted_whether_it_was_at_an_attempt_or_not(measured):
    measured.watcher.observe(ExecutorLost(ATTEMPT, "exited with code 1"))
    measured.watcher.observe(ExecutorLost(None, "exited with code 1"))
    assert measured.value("perago.executors.lost") == 2


def test_the_gauges_follow_what_is_going_on(measured):
    watcher = measured.watcher

    def now():
        return [
            measured.value(name)
            for name in ("perago.worker.up", "perago.orchestrator.up", "perago.executors.busy")
        ]

    assert now() == [1, 0, 0]
    watcher.observe(OrchestratorReachable())
    watcher.observe(AttemptStarted(EXECUTION))
    assert now() == [1, 1, 1]
    watcher.observe(OrchestratorUnreachable(OrchestratorUnavailableError("not now")))
    watcher.observe(
        AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.FAILED, reason="executor_lost: …")
    )
    assert now() == [1, 0, 0]


def test_the_words_of_an_error_between_the_steps_never_become_an_attribute(measured):
    measured.watcher.observe(
        StepEnded(ATTEMPT, {"step": "cleanup.failed", "error": "/some/path is busy"})
    )
    assert measured.points("perago.step.failures") == []


# --- the reference page ---------------------------------------------------------------------------


@pytest.fixture
def everything(measured, attempt_under):
    """Whatever can be measured, once."""
    watcher = measured.watcher
    attempt_under(watcher)
    attempt_under(watcher, fail=True)
    attempt = attempt_under(watcher, retry=True)
    watcher.observe(HeartbeatAccepted(attempt))
    watcher.observe(AttemptStarted(Execution.begin(attempt)))
    watcher.observe(ExecutorLost(attempt, "exited with code 1"))
    watcher.observe(AttemptEnded(attempt, Ending.LEASE_LOST))
    return measured.metrics()


def _rows():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[0].startswith("`perago."):
            yield cells


def _names(cell):
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_page_lists_exactly_what_is_emitted(everything):
    emitted = {
        (
            metric.name,
            KINDS[type(metric.data)],
            metric.unit,
            metric.description,
            frozenset(key for point in metric.data.data_points for key in point.attributes),
        )
        for metric in everything.values()
    }
    listed = {
        (*_names(name), kind, *_names(unit), means, frozenset(_names(attributes)))
        for name, kind, unit, attributes, means, _ in _rows()
    }
    assert listed == emitted


def test_every_declared_metric_is_emitted_with_all_its_attributes(everything):
    assert set(everything) == {metric.name for metric in METRICS}
    for metric in METRICS:
        for point in everything[metric.name].data.data_points:
            assert set(point.attributes) == set(metric.attributes), metric.name
