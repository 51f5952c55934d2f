"""How OpenLineage is configured on this machine, by its own environment variables and files.

OpenLineage's clients for Python and Java read them themselves. This module only finds out whether
there is anything to read, without importing a client.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_NAMESPACE = "perago"
_FILE = "openlineage.yml"
_TRANSPORT = "OPENLINEAGE__TRANSPORT"
_REQUEST_MILLISECONDS = "1000"  # an attempt waits until Spark's listener has sent its events


def is_configured(environment: Mapping[str, str]) -> bool:
    """Whether lineage is to be sent anywhere, by OpenLineage's own rules.

    One exception: OpenLineage prints events to the console if nothing is configured; we don't.
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return bool(environment.get("OPENLINEAGE_URL", "").strip()) or _has_transport(environment)


def _has_transport(environment: Mapping[str, str]) -> bool:
    """Whether a full transport is configured, which takes precedence over OPENLINEAGE_URL."""
    if any(name.startswith(_TRANSPORT) for name in environment):
        return True
    named = environment.get("OPENLINEAGE_CONFIG", "").strip()
    files = [Path(named)] if named else []
    files += [Path(_FILE), Path("~/.openlineage").expanduser() / _FILE]
    return any(file.is_file() for file in files)


def job_namespace(environment: Mapping[str, str]) -> str:
    """Return the namespace of all our jobs."""
    return environment.get("OPENLINEAGE_NAMESPACE", "").strip() or DEFAULT_NAMESPACE


def http_transport(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the transport that OPENLINEAGE_URL stands for, which the Java client doesn't know.

    Empty if a full transport is configured, which both clients read. It may hold a secret.
    """
    url = environment.get("OPENLINEAGE_URL", "").strip()
    if not url or _has_transport(environment):
        return {}
    transport = {"type": "http", "url": url, "timeoutInMillis": _REQUEST_MILLISECONDS}
    if endpoint := environment.get("OPENLINEAGE_ENDPOINT", "").strip():
        transport["endpoint"] = endpoint
    if key := environment.get("OPENLINEAGE_API_KEY", "").strip():
        transport |= {"auth.type": "api_key", "auth.apiKey": key}
    return transport
