"""The OpenTelemetry SDK, set up to serve or send metrics and traces without delaying the worker.

The SDK sends from its own threads; its queues drop what does not fit. It follows OpenTelemetry's
variables: endpoint, headers, certificates, time-outs, sampling, resource.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider

from perago.worker.events import Observers
from perago.worker.metrics import MetricsObserver
from perago.worker.telemetry_config import log_problem
from perago.worker.traces import TracesObserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.metrics.export import MetricReader

    from perago.worker.events import Observer
    from perago.worker.telemetry_config import TelemetryConfig


SERVICE_NAME = "perago-worker"
CLOSE_SECONDS = 1.0
"""How long the last sending may take: an unreachable collector must not delay the end."""
SAME_PROBLEM_SECONDS = 60.0
"""How often the same problem with a collector is logged."""
_SCOPE = "perago"


class Telemetry(Observers):
    """An observer that measures and traces. Close it at the end.

    ``metrics_text`` returns the metrics in Prometheus's format, in any thread; None if they are not
    served.
    """

    def __init__(self, config: TelemetryConfig) -> None:
        release = version("perago-runtime")
        resource = _resource(release)
        self.metrics_text: Callable[[], bytes] | None = None
        _log_problems_of_sdk()
        self._providers: list[MeterProvider | TracerProvider] = []
        observers: list[Observer] = []
        readers: list[MetricReader] = []
        if config.served_metrics:
            page = _Page()
            readers.append(page.reader)
            self.metrics_text = page.text
        if config.sent_metrics:
            readers.append(_sending_reader())
        if readers:
            meters = MeterProvider(readers, resource, shutdown_on_exit=False)
            self._providers.append(meters)
            observers.append(MetricsObserver(meters.get_meter(_SCOPE, release)))
        if config.sent_traces:
            tracers = _sending_tracers(resource)
            self._providers.append(tracers)
            observers.append(TracesObserver(tracers.get_tracer(_SCOPE, release)))
        super().__init__(*observers)

    def close(self) -> None:
        """Send what is left, for at most :data:`CLOSE_SECONDS`; the rest is lost."""
        deadline = time.monotonic() + CLOSE_SECONDS
        closing = [
            threading.Thread(target=_shut_down, args=(each,), daemon=True, name="telemetry-end")
            for each in self._providers
        ]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join(max(0.0, deadline - time.monotonic()))


class _Page:
    """The metrics as Prometheus scrapes them."""

    def __init__(self) -> None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import CollectorRegistry

        self._registry = CollectorRegistry()
        self._writing = threading.Lock()  # the reader can't serve two requests at a time
        self.reader = PrometheusMetricReader(registry=self._registry, scope_info_enabled=False)

    def text(self) -> bytes:
        from prometheus_client import generate_latest

        with self._writing:
            return generate_latest(self._registry)


def _sending_reader() -> MetricReader:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return PeriodicExportingMetricReader(OTLPMetricExporter())


def _sending_tracers(resource: Resource) -> TracerProvider:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return tracers


def _resource(release: str) -> Resource:
    """Our service name and version; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    ours = {"service.name": SERVICE_NAME, "service.version": release}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def _shut_down(provider: MeterProvider | TracerProvider) -> None:
    with suppress(Exception):  # out of time
        provider.shutdown()


def _log_problems_of_sdk() -> None:
    """Never undone: the SDK may still log after :meth:`Telemetry.close`."""
    logger = logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [_ProblemHandler(logging.WARNING)], False


class _ProblemHandler(logging.Handler):
    """Writes the SDK's warnings to standard error, each at most once a minute.

    Of an exception only the type is logged: its message may hold an address with a key in it.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._logged_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._logged_at.get(record.msg, float("-inf")) < SAME_PROBLEM_SECONDS:
            return
        self._logged_at[record.msg] = now
        log_problem(f"OpenTelemetry: {_without_secrets(record)}")


def _without_secrets(record: logging.LogRecord) -> str:
    given = record.args if isinstance(record.args, tuple) else ()
    safe = (type(each).__name__ if isinstance(each, Exception) else each for each in given)
    words = record.msg % tuple(safe) if given else record.msg
    cause = record.exc_info[0] if record.exc_info else None
    return f"{words} ({cause.__name__})" if cause else words
