"""The OpenTelemetry SDK, set up to be fetched from or to send; it never holds up the worker.

Sending happens in threads of the SDK's own, from queues that drop what doesn't fit. It follows
OpenTelemetry's variables: address, headers, certificates, time-outs, sampling, resource.
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
from perago.worker.observers import complain
from perago.worker.traces import TracesObserver

if TYPE_CHECKING:
    from collections.abc import Callable

    from opentelemetry.sdk.metrics.export import MetricReader

    from perago.worker.events import Observer
    from perago.worker.observers import TelemetryConfig


SERVICE_NAME = "perago-worker"
CLOSE_SECONDS = 1.0
"""How long the last sending may take: a collector that is away must not hold up the end."""
COMPLAINT_SECONDS = 60.0
"""How often the same trouble with a collector is worth a line."""
_SCOPE = "perago"


class Telemetry(Observers):
    """A watcher that measures and traces; to be closed when there is nothing more to watch.

    ``metrics_text`` tells the metrics in Prometheus's format, from any thread; None unless they
    are asked for.
    """

    def __init__(self, wish: TelemetryConfig) -> None:
        release = version("perago-runtime")
        resource = _resource(release)
        self.metrics_text: Callable[[], bytes] | None = None
        _hear_complaints()
        self._providers: list[MeterProvider | TracerProvider] = []
        watchers: list[Observer] = []
        readers: list[MetricReader] = []
        if wish.fetched_metrics:
            page = _Page()
            readers.append(page.reader)
            self.metrics_text = page.text
        if wish.sent_metrics:
            readers.append(_sending_reader())
        if readers:
            meters = MeterProvider(readers, resource, shutdown_on_exit=False)
            self._providers.append(meters)
            watchers.append(MetricsObserver(meters.get_meter(_SCOPE, release)))
        if wish.sent_traces:
            tracers = _sending_tracers(resource)
            self._providers.append(tracers)
            watchers.append(TracesObserver(tracers.get_tracer(_SCOPE, release)))
        super().__init__(*watchers)

    def close(self) -> None:
        """Send what is left, for :data:`CLOSE_SECONDS` at most: what isn't taken then is lost."""
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
    """The metrics as Prometheus fetches them."""

    def __init__(self) -> None:
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from prometheus_client import CollectorRegistry

        self._registry = CollectorRegistry()
        self._writing = threading.Lock()  # the reader mixes up two who fetch at a time
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
    """Who we are, unless OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say otherwise."""
    ours = {"service.name": SERVICE_NAME, "service.version": release}
    return Resource.create(ours).merge(OTELResourceDetector().detect())


def _shut_down(provider: MeterProvider | TracerProvider) -> None:
    with suppress(Exception):  # out of time, of which nobody has to hear any more
        provider.shutdown()


def _hear_complaints() -> None:
    """For good: what couldn't be sent in time is complained about after the end, too."""
    logger = logging.getLogger("opentelemetry")
    logger.handlers, logger.propagate = [_Complaints(logging.WARNING)], False


class _Complaints(logging.Handler):
    """What the SDK logs about its collector, on standard error, each only once in a while.

    Of an exception only the kind is told: its words may hold the address with a key in it.
    """

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._said_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._said_at.get(record.msg, float("-inf")) < COMPLAINT_SECONDS:
            return
        self._said_at[record.msg] = now
        complain(f"OpenTelemetry: {_without_secrets(record)}")


def _without_secrets(record: logging.LogRecord) -> str:
    given = record.args if isinstance(record.args, tuple) else ()
    told = (type(each).__name__ if isinstance(each, Exception) else each for each in given)
    words = record.msg % tuple(told) if given else record.msg
    cause = record.exc_info[0] if record.exc_info else None
    return f"{words} ({cause.__name__})" if cause else words
