"""Where a Conductor is, who we are there, and how long we wait for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: until there is a connection, and for how long the server may then be silent."""

    connect: float = 5.0
    answer: float = 30.0


@dataclass(frozen=True, slots=True)
class ConductorAccess:
    """``address`` is that of the API: ``http://HOST:PORT/api``.

    ``key`` and ``secret`` are for a server that asks for them. ``ca_file`` holds the certificates
    of an authority to believe, which the machine may not know.
    """

    address: str
    key: str | None = None
    secret: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeouts: Timeouts = Timeouts()
