"""Where a lakeFS is, who we are there, and how we get there: the same for both of its planes."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from perago.errors import RuntimeConfigError
from perago.settings import API_PATH

if TYPE_CHECKING:
    from pathlib import Path

_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A read is per request; a mutation's answer is given up after its own."""

    connect: float = 5.0
    read: float = 30.0
    mutation: float = 60.0


@dataclass(frozen=True, slots=True)
class LakeFSAccess:
    """One set of credentials on one server. ``endpoint`` is its address without the API's path.

    ``ca_file`` holds the certificates of an authority to believe, which the machine may not know.
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
        """The proxy that the environment names for this server, if it does.

        Raises RuntimeConfigError if what it names is no proxy that could be used.
        """
        parts = urlsplit(self.endpoint)
        if proxy_bypass(parts.netloc):
            return None
        found = getproxies()
        named = found.get(parts.scheme) or found.get("all")
        return _usable_proxy(named, parts.scheme) if named else None

    @property
    def proxy_headers(self) -> dict[str, str]:
        """What a proxy with a password is to be told; not all clients take it from the address."""
        parts = urlsplit(self.proxy or "")
        if not parts.username:
            return {}
        words = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Proxy-Authorization": f"Basic {b64encode(words.encode()).decode()}"}


def _usable_proxy(named: str, scheme: str) -> str:
    url = named if "://" in named else f"http://{named}"
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]  # what stands before it may be a password
    if parts.scheme in ("http", "https") and _HOST.fullmatch(host):
        return url
    raise RuntimeConfigError(
        f"the proxy for {scheme} addresses, {parts.scheme}://{host}, can't be used",
        fix=f"give {scheme.upper()}_PROXY as http://HOST:PORT, or name lakeFS's host in NO_PROXY",
    )
