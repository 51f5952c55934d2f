"""Metrics and traces of a worker, if anybody asks for them and the ``otel`` extra is installed.

Who asks: ``PERAGO_LISTEN`` for metrics to be fetched, OpenTelemetry's own variables for metrics and
traces to be sent to a collector. Otherwise nothing of OpenTelemetry is even imported.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.errors import RuntimeConfigError
from perago.toolchain.lineage_config import is_configured, job_namespace
from perago.worker.lineage import LineageObserver, Sender

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.settings import Settings
    from perago.worker.events import Observer
    from perago.worker.telemetry import Telemetry


PROTOCOL = "http/protobuf"
"""The one way to a collector that the extra brings along."""


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """What is asked for: something to fetch, something to be sent."""

    fetched_metrics: bool
    sent_metrics: bool
    sent_traces: bool

    @property
    def sent(self) -> bool:
        return self.sent_metrics or self.sent_traces

    def __bool__(self) -> bool:
        return self.fetched_metrics or self.sent


def open_telemetry(listen: str | None) -> Telemetry | None:
    """A watcher that measures and traces, to be closed; None if nobody asks or it can't be done.

    ``listen`` is where metrics are to be fetched.

    Raises RuntimeConfigError for a way to the collector that isn't there.
    """
    wish = wished_for(listen, os.environ)
    if not wish:
        return None
    try:
        from perago.worker.telemetry import Telemetry

        return Telemetry(wish)
    except ModuleNotFoundError:
        if wish.sent:  # to whom fetches them it is said there
            complain(
                "no metrics or traces are sent: OpenTelemetry isn't installed",
                fix="pip install 'perago-runtime[otel]', or unset OTEL_EXPORTER_OTLP_ENDPOINT",
            )
        return None


def wished_for(listen: str | None, environment: Mapping[str, str]) -> TelemetryConfig:
    """By OpenTelemetry's own rules, but that nothing is sent unless an address is given.

    Raises RuntimeConfigError.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TelemetryConfig(fetched_metrics=False, sent_metrics=False, sent_traces=False)
    return TelemetryConfig(
        fetched_metrics=listen is not None,
        sent_metrics=_is_sent("METRICS", environment),
        sent_traces=_is_sent("TRACES", environment),
    )


def _is_sent(signal: str, environment: Mapping[str, str]) -> bool:
    exporters = environment.get(f"OTEL_{signal}_EXPORTER", "").strip() or "otlp"
    addressed = _either(signal, "ENDPOINT", environment) is not None
    if not addressed or "otlp" not in exporters.split(","):
        return False
    variable, protocol = _either(signal, "PROTOCOL", environment) or ("", PROTOCOL)
    if protocol != PROTOCOL:
        raise RuntimeConfigError(
            f"{variable}={protocol!r} is not a way to the collector that is supported",
            fix=f"set it to {PROTOCOL!r}, with the address of the collector's HTTP port (mostly "
            "4318)",
        )
    return True


def _either(signal: str, what: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that counts for a signal, its own or that for all, and its value."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"):
        if value := environment.get(variable, "").strip():
            return variable, value
    return None


def complain(message: str, *, fix: str | None = None) -> None:
    """Say on standard error, as one of the worker's JSON lines, that telemetry doesn't work."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": "telemetry",
        "message": message,
        "fix": fix,
    }
    sys.stderr.write(json.dumps(line) + "\n")


# --- Lineage of what a supervisor runs, if it is set up and the ``lineage`` extra is installed ---


@contextmanager
def lineage(settings: Settings) -> Iterator[list[Observer]]:
    """The watchers that have to be told what happens: one, or none if nobody asks for lineage."""
    if not is_configured(os.environ):
        yield []
        return
    if find_spec("openlineage") is None:
        complain(
            "no lineage is sent: OpenLineage isn't installed",
            fix="pip install 'perago-runtime[lineage]', or set OPENLINEAGE_DISABLED=true",
        )
        yield []
        return
    sender = Sender(job_namespace(os.environ), dataset_namespace(settings), _say_lost)
    watcher = LineageObserver(sender.send)
    try:
        yield [watcher]
    finally:
        watcher.close()
        sender.close()


def dataset_namespace(settings: Settings) -> str:
    """The store that workspaces are in: a lakeFS by its address, or a directory of this machine."""
    if settings.store == "lakefs":
        return f"lakefs://{urlsplit(settings.lakefs_endpoint or '').netloc}"
    return f"file://{socket.gethostname()}{settings.home.absolute() / 'store'}"


def _say_lost(why: str) -> None:
    complain(
        f"lineage is lost: {why}",
        fix="see to OPENLINEAGE_URL or openlineage.yml, or set OPENLINEAGE_DISABLED=true",
    )
