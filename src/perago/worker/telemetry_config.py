"""Which metrics and traces a worker makes: by ``PERAGO_LISTEN`` and OpenTelemetry's variables.

``PERAGO_LISTEN`` serves metrics; OpenTelemetry's own variables send metrics and traces to a
collector. Without either, OpenTelemetry is not even imported. It is in the ``otel`` extra.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.worker.telemetry import Telemetry


PROTOCOL = "http/protobuf"
"""The only protocol that the extra has an exporter for."""


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """Which metrics are served, and which metrics and traces are sent."""

    served_metrics: bool
    sent_metrics: bool
    sent_traces: bool

    @property
    def sent(self) -> bool:
        return self.sent_metrics or self.sent_traces

    def __bool__(self) -> bool:
        return self.served_metrics or self.sent


def open_telemetry(listen: str | None) -> Telemetry | None:
    """An observer that measures and traces; close it at the end. None if there is nothing to do.

    ``listen`` is the address where metrics are served. If OpenTelemetry is not installed, a line on
    standard error says so, and the worker runs without it. Raises RuntimeConfigError.
    """
    config = telemetry_config(listen, os.environ)
    if not config:
        return None
    try:
        from perago.worker.telemetry import Telemetry

        return Telemetry(config)
    except ModuleNotFoundError:
        if config.sent:  # otherwise /metrics says so
            log_problem(
                "no metrics or traces are sent: OpenTelemetry isn't installed",
                fix="pip install 'perago-runtime[otel]', or unset OTEL_EXPORTER_OTLP_ENDPOINT",
            )
        return None


def telemetry_config(listen: str | None, environment: Mapping[str, str]) -> TelemetryConfig:
    """By OpenTelemetry's own rules, except that nothing is sent unless an endpoint is set.

    Raises RuntimeConfigError for a protocol that is not supported.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TelemetryConfig(served_metrics=False, sent_metrics=False, sent_traces=False)
    return TelemetryConfig(
        served_metrics=listen is not None,
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
            f"{variable}={protocol!r}: only {PROTOCOL!r} is supported",
            fix=f"set {variable}={PROTOCOL}, with the collector's HTTP port (usually 4318)",
        )
    return True


def _either(signal: str, what: str, environment: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that counts for a signal (its own, or the one for all) and its value."""
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_{what}", f"OTEL_EXPORTER_OTLP_{what}"):
        if value := environment.get(variable, "").strip():
            return variable, value
    return None


def log_problem(message: str, *, fix: str | None = None) -> None:
    """Write a JSON line to standard error: telemetry or lineage does not work."""
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": "telemetry",
        "message": message,
        "fix": fix,
    }
    sys.stderr.write(json.dumps(line) + "\n")
