"""How OpenLineage is set up on this machine: by its own variables and files.

Its clients for Python and for Java read them themselves. Here it is only found out whether there is
anything to read, without importing one.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


DEFAULT_NAMESPACE = "perago"
_FILE = "openlineage.yml"
_TRANSPORT = "OPENLINEAGE__TRANSPORT"
_REQUEST_MILLISECONDS = "1000"  # an attempt waits for Spark's listener, as for nothing else of it


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether lineage is to be sent anywhere, by OpenLineage's own rules.

    But that nothing is printed where nothing is set up.
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    return bool(environment.get("OPENLINEAGE_URL", "").strip()) or _is_spelled_out(environment)


def _is_spelled_out(environment: Mapping[str, str]) -> bool:
    """Whether there is more than an address: that goes before it."""
    if any(name.startswith(_TRANSPORT) for name in environment):
        return True
    named = environment.get("OPENLINEAGE_CONFIG", "").strip()
    files = [Path(named)] if named else []
    files += [Path(_FILE), Path("~/.openlineage").expanduser() / _FILE]
    return any(file.is_file() for file in files)


def job_namespace(environment: Mapping[str, str]) -> str:
    """What all our jobs are in."""
    return environment.get("OPENLINEAGE_NAMESPACE", "").strip() or DEFAULT_NAMESPACE


def http_transport(environment: Mapping[str, str]) -> dict[str, str]:
    """The address and key of the plain variables, which the client for Java doesn't know.

    Empty where more is said, which both read. It may hold a secret.
    """
    url = environment.get("OPENLINEAGE_URL", "").strip()
    if not url or _is_spelled_out(environment):
        return {}
    transport = {"type": "http", "url": url, "timeoutInMillis": _REQUEST_MILLISECONDS}
    if endpoint := environment.get("OPENLINEAGE_ENDPOINT", "").strip():
        transport["endpoint"] = endpoint
    if key := environment.get("OPENLINEAGE_API_KEY", "").strip():
        transport |= {"auth.type": "api_key", "auth.apiKey": key}
    return transport
