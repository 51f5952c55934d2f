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


def is_asked_for(environment: Mapping[str, str]) -> bool:
    """Whether lineage is to be sent anywhere, by OpenLineage's own rules.

    But that nothing is printed where nothing is set up.
    """
    if environment.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if environment.get("OPENLINEAGE_URL", "").strip():
        return True
    if any(name.startswith(_TRANSPORT) for name in environment):
        return True
    named = environment.get("OPENLINEAGE_CONFIG", "").strip()
    files = [Path(named)] if named else []
    files += [Path(_FILE), Path("~/.openlineage").expanduser() / _FILE]
    return any(file.is_file() for file in files)


def job_namespace(environment: Mapping[str, str]) -> str:
    """What all our jobs are in."""
    return environment.get("OPENLINEAGE_NAMESPACE", "").strip() or DEFAULT_NAMESPACE
