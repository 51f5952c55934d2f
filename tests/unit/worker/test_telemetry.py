"""Telemetry as a worker has it: if it is asked for, sent to a collector, and never in the way."""

import json
import logging
import os
import socket
import subprocess
import sys
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from perago.errors import RuntimeConfigError
from perago.model.attempt import Attempt, Execution, TaskStatus
from perago.worker.events import AttemptEnded, AttemptStarted, Ending, StepEnded
from perago.worker.metrics import METRICS
from perago.worker.telemetry_config import TelemetryConfig, open_telemetry, telemetry_config

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metrics.md"
ATTEMPT = Attempt("wf", "ref", 1, 0, "task-id", 0, "songs.clean")
EXECUTION = Execution(ATTEMPT, "0" * 32)
ADDRESS = "http://collector.example:4318"


@pytest.fixture(autouse=True)
def _nobody_asks(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(autouse=True)
def _nobody_goes_on_sending(monkeypatch):
    """What a collector doesn't take is tried on after the end, and would disturb the next test."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    yield
    for thread in threading.enumerate():
        if thread.name == "telemetry-end":
            thread.join()


# --- who asks -------------------------------------------------------------------------------------

ALL, TRACES, METRICS_ENDPOINT = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
)


@pytest.mark.parametrize(
    ("listen", "environment", "served_metrics", "sent_metrics", "sent_traces"),
    [
        (None, {}, False, False, False),
        ("9464", {}, True, False, False),
        (None, {ALL: ADDRESS}, False, True, True),
        (None, {TRACES: ADDRESS}, False, False, True),
        (None, {METRICS_ENDPOINT: ADDRESS}, False, True, False),
        (None, {ALL: ADDRESS, "OTEL_TRACES_EXPORTER": "none"}, False, True, False),
        (None, {ALL: ADDRESS, "OTEL_METRICS_EXPORTER": "none"}, False, False, True),
        (None, {ALL: ADDRESS, "OTEL_METRICS_EXPORTER": "console,otlp"}, False, True, True),
        (None, {ALL: ADDRESS, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, False, True, True),
        (None, {ALL: " "}, False, False, False),
        ("9464", {ALL: ADDRESS, "OTEL_SDK_DISABLED": "true"}, False, False, False),
    ],
)
def test_who_asks_for_what(listen, environment, served_metrics, sent_metrics, sent_traces):
    assert telemetry_config(listen, environment) == TelemetryConfig(
        served_metrics, sent_metrics, sent_traces
    )


@pytest.mark.parametrize(
    "variable", ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"]
)
def test_a_protocol_that_is_not_spoken_is_refused_by_name(variable):
    with pytest.raises(RuntimeConfigError, match=f"{variable}='grpc'") as refused:
        telemetry_config(None, {ALL: ADDRESS, variable: "grpc"})
    assert "http/protobuf" in refused.value.fix


def test_nothing_is_opened_if_nobody_asks():
    assert open_telemetry(None) is None


# --- sending --------------------------------------------------------------------------------------


class Collector:
    """Takes what is sent over HTTP, as a collector does, and keeps it; or answers with a status."""

    def __init__(self, status=200):
        self.spans, self.metrics, self.headers = [], [], []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers.append(dict(self.headers))
                collector.take(self.path, body)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format, *args):  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path, body):
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.resource = {a.key: a.value.string_value for a in resource.resource.attributes}
                self.metrics += [m for scope in resource.scope_metrics for m in scope.metrics]

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


@pytest.fixture
def silent_collector():
    """Lets everybody in and never says a word."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def absent_collector():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listening: whoever calls is refused
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def test_an_attempt_reaches_the_collector_before_the_worker_ends(
    collector, monkeypatch, attempt_under
):
    monkeypatch.setenv(ALL, collector.address)
    telemetry = open_telemetry(None)
    attempt_under(telemetry)
    telemetry.close()
    assert {"attempt watched.write", "body", "publish"} <= {span.name for span in collector.spans}
    assert {"perago.attempts", "perago.publications"} <= {m.name for m in collector.metrics}


def test_only_the_signal_with_an_address_is_sent(collector, monkeypatch, attempt_under):
    monkeypatch.setenv(TRACES, f"{collector.address}/v1/traces")
    telemetry = open_telemetry(None)
    attempt_under(telemetry)
    telemetry.close()
    assert collector.spans
    assert collector.metrics == []


def test_the_worker_says_who_it_is_unless_the_environment_does(collector, monkeypatch):
    monkeypatch.setenv(METRICS_ENDPOINT, f"{collector.address}/v1/metrics")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=trial")
    open_telemetry(None).close()
    assert collector.resource["service.name"] == "perago-worker"
    assert collector.resource["deployment.environment.name"] == "trial"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "songs")
    open_telemetry(None).close()
    assert collector.resource["service.name"] == "songs"


def test_headers_are_sent_as_the_environment_says(collector, monkeypatch):
    monkeypatch.setenv(METRICS_ENDPOINT, f"{collector.address}/v1/metrics")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-api-key=abc")
    open_telemetry(None).close()
    assert {headers["x-api-key"] for headers in collector.headers} == {"abc"}


@pytest.mark.parametrize("which", ["silent_collector", "absent_collector"])
def test_a_collector_that_does_not_answer_slows_no_attempt(
    which, request, monkeypatch, attempt_under, capfd
):
    monkeypatch.setenv(ALL, request.getfixturevalue(which))
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1")
    telemetry = open_telemetry(None)
    slowest = 0.0
    for _ in range(2_000):  # more than fits into the queue of spans
        began = time.monotonic()
        telemetry.observe(AttemptStarted(EXECUTION))
        telemetry.observe(StepEnded(ATTEMPT, {"step": "body", "seconds": 0.1}))
        telemetry.observe(AttemptEnded(ATTEMPT, Ending.ACCEPTED, TaskStatus.COMPLETED))
        slowest = max(slowest, time.monotonic() - began)
    assert slowest < 5  # a call that waited for the collector would take its time-out, 10 s
    began = time.monotonic()
    telemetry.close()
    assert time.monotonic() - began < 5


def test_a_process_ends_in_time_though_its_collector_is_silent(silent_collector):
    script = """
        import time
        from perago.model.attempt import Attempt, Execution, TaskStatus
        from perago.worker.events import AttemptEnded, AttemptStarted, Ending
        from perago.worker.telemetry_config import open_telemetry

        telemetry = open_telemetry(None)
        attempt = Attempt("wf", "ref", 1, 0, "task-id", 0, "songs.clean")
        telemetry.observe(AttemptStarted(Execution.begin(attempt)))
        telemetry.observe(AttemptEnded(attempt, Ending.ACCEPTED, TaskStatus.COMPLETED))
        print(time.time())
        telemetry.close()
    """
    told = _python(script, **{ALL: silent_collector})
    assert time.time() - float(told.stdout) < 5  # as above: far from its time-out


# --- what is said about a collector that doesn't work ---------------------------------------------


def _complaints(capfd):
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


def test_a_refusal_is_said_on_standard_error_without_the_address_or_a_key(
    absent_collector, monkeypatch, capfd
):
    monkeypatch.setenv(ALL, f"{absent_collector}/?api-key=hunter2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hunter2")
    open_telemetry(None).close()
    complaints = _complaints(capfd)
    assert {complaint["event"] for complaint in complaints} == {"telemetry"}
    assert any("ConnectionError" in complaint["message"] for complaint in complaints)
    assert "hunter2" not in json.dumps(complaints)


def test_an_answer_that_is_a_refusal_is_said_with_its_status(monkeypatch, capfd):
    collector = Collector(status=401)
    try:
        monkeypatch.setenv(METRICS_ENDPOINT, f"{collector.address}/v1/metrics")
        open_telemetry(None).close()
    finally:
        collector.close()
    (complaint,) = _complaints(capfd)
    assert "401" in complaint["message"]


def test_the_same_trouble_is_said_once_in_a_while(collector, monkeypatch, capfd):
    monkeypatch.setenv(ALL, collector.address)
    telemetry = open_telemetry(None)
    for _ in range(3):
        logging.getLogger("opentelemetry.sdk").warning("Queue full, dropping %s.", "Span")
    telemetry.close()
    (complaint,) = _complaints(capfd)
    assert complaint["message"] == "OpenTelemetry: Queue full, dropping Span."


# --- fetching -------------------------------------------------------------------------------------


def test_the_metrics_text_is_what_prometheus_reads_under_the_names_the_page_gives(attempt_under):
    telemetry = open_telemetry("127.0.0.1:9464")
    attempt_under(telemetry, fail=True)
    attempt_under(telemetry, retry=True)
    text = telemetry.metrics_text().decode()
    telemetry.close()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (published,) = [s for s in families["perago_step_failures"].samples if s.value == 2]
    assert published.labels == {
        "perago_task_name": "watched.write",
        "perago_step_name": "body",
        "error_type": "task_failed",
    }
    page = PAGE.read_text(encoding="utf-8")
    ours = {name for name in families if name.startswith("perago_")}
    assert "perago_attempt_duration_seconds" in ours
    for name in ours:
        told = f"{name}_total" if families[name].type == "counter" else name
        assert f"| `{told}` |" in page


def test_the_page_gives_every_metrics_name_for_prometheus():
    page = PAGE.read_text(encoding="utf-8")
    for metric in METRICS:
        suffix = {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "")
        suffix += "_total" if metric.kind == "counter" else ""
        assert f"| `{metric.name.replace('.', '_')}{suffix}` |" in page


def test_without_listening_there_is_no_text(collector, monkeypatch):
    monkeypatch.setenv(ALL, collector.address)
    telemetry = open_telemetry(None)
    assert telemetry.metrics_text is None
    telemetry.close()


# --- what isn't there -----------------------------------------------------------------------------


def _python(script, **environment):
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=inherited | {"NO_PROXY": "127.0.0.1"} | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )


def test_opentelemetry_is_not_even_imported_if_nobody_asks():
    script = """
        import sys
        from perago.worker.health import serving

        with serving(None):
            print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
    """
    assert _python(script).stdout == "[]\n"


def test_without_the_extra_a_worker_goes_on_and_says_why_nothing_is_sent():
    script = """
        import sys
        sys.modules["opentelemetry.sdk.metrics"] = None  # as if it weren't installed
        from perago.worker.telemetry_config import open_telemetry

        print(open_telemetry("127.0.0.1:9464"))
    """
    result = _python(script, **{ALL: ADDRESS})
    assert result.stdout == "None\n"
    said = json.loads(result.stderr)
    assert "isn't installed" in said["message"]
    assert "perago-runtime[otel]" in said["fix"]
