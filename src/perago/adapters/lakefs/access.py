"""Where a lakeFS is, who we are there, and how we get there: the same for both of its planes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from pathlib import Path

API_PATH = "/api/v1"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A read is per request; a mutation's answer is given up after its own."""

    connect: float = 5.0
    read: float = 30.0
    mutation: float = 60.0


@dataclass(frozen=True, slots=True)
class LakeFSAccess:
    """One set of credentials on one server. ``endpoint`` is its address without the API's path.

    ``ca_file`` holds the certificates of the authorities to believe, instead of the machine's.
    ``storage_namespace`` is where repositories made by us keep their objects, each in a folder of
    its name.
    """

    endpoint: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    ca_file: Path | None = None
    storage_namespace: str | None = None
    timeouts: Timeouts = Timeouts()

    @property
    def api_url(self) -> str:
        return f"{self.endpoint}{API_PATH}"

    @property
    def proxy(self) -> str | None:
        """The proxy that the environment names for this server, if it does."""
        parts = urlsplit(self.endpoint)
        if proxy_bypass(parts.netloc):
            return None
        found = getproxies()
        return found.get(parts.scheme) or found.get("all")


def plain_endpoint(url: str) -> str:
    """The server's address, with or without the API's path as lakectl's settings have it.

    Raises RuntimeConfigError if it isn't an http(s) address.
    """
    parts = urlsplit(url.strip())
    if parts.username or parts.password:  # not shown: it may hold a secret
        raise RuntimeConfigError(
            "LAKECTL_SERVER_ENDPOINT_URL has credentials in it",
            fix="leave only the address, and set the two LAKECTL_CREDENTIALS_… variables",
        )
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RuntimeConfigError(
            f"LAKECTL_SERVER_ENDPOINT_URL={url!r} is not the address of a server",
            fix="give it as http://HOST:PORT or https://HOST",
        )
    path = parts.path.rstrip("/").removesuffix(API_PATH)
    return f"{parts.scheme}://{parts.netloc}{path}"
