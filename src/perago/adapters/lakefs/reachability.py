"""One request to the server's address that reports exactly how it failed, for ``perago doctor``.

Other requests only need to know whether a retry may help.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perago.adapters.lakefs.client import LakeFSConfig


_VERSION_PATH = "/config/version"  # needs a known user, but no permission
_BODY_LIMIT = 10_000
_WRONG_NAME = frozenset({62, 64})  # OpenSSL's codes: host name mismatch, IP address mismatch
_WRONG_TIME = frozenset({9, 10})  # OpenSSL's codes: not valid yet, expired


class Cause(StrEnum):
    """Why there was no response."""

    UNKNOWN_HOST = "the host's name is unknown"
    REFUSED = "nothing accepts connections there"
    TIMEOUT = "no response in time"
    PROXY = "the proxy can't be used"
    UNTRUSTED = "the server's certificate isn't trusted"
    WRONG_NAME = "the server's certificate is for another name"
    WRONG_TIME = "the server's certificate is not valid now"
    NO_TLS = "the server doesn't use TLS"
    CUT = "the connection was cut"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No response; ``detail`` is the error's own text."""

    cause: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Reached:
    """A response, from lakeFS or another server.

    ``date`` and ``location`` are its headers, "" without one; ``asked_at`` is our clock's time.
    """

    status: int
    body: str
    date: str
    location: str
    asked_at: float
    took: float


def reach(config: LakeFSConfig, *, authenticated: bool) -> Reached | Unreachable:
    """Request the server's version, with our credentials or without."""
    import urllib3
    from urllib3 import exceptions as network

    headers = (
        urllib3.make_headers(basic_auth=f"{config.access_key_id}:{config.secret_access_key}")
        if authenticated
        else {}
    )
    asked_at = time.time()
    try:
        with _pool_for(config) as pool:
            response = pool.request(
                "GET",
                f"{config.api_url}{_VERSION_PATH}",
                headers=headers,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(config.timeouts.connect, config.timeouts.read),
                preload_content=False,
            )
            body = response.read(_BODY_LIMIT, decode_content=True)
    except (network.HTTPError, OSError) as lost:
        # A proxy's error has the real one as an attribute; its own text is a tuple.
        return Unreachable(_cause_of(lost), str(getattr(lost, "original_error", lost)))
    return Reached(
        status=response.status,
        body=body.decode(errors="replace"),
        date=response.headers.get("Date", ""),
        location=response.headers.get("Location", ""),
        asked_at=asked_at,
        took=time.time() - asked_at,
    )


def _pool_for(config: LakeFSConfig) -> Any:
    import urllib3

    ca_file = str(config.ca_file) if config.ca_file else None
    if config.proxy is None:
        return urllib3.PoolManager(ca_certs=ca_file)
    return urllib3.ProxyManager(config.proxy, proxy_headers=config.proxy_headers, ca_certs=ca_file)


def _cause_of(lost: BaseException) -> Cause:
    from urllib3 import exceptions as network

    if isinstance(lost, network.ProxyError):
        return Cause.PROXY
    if isinstance(lost, network.SSLError):
        return _tls_cause_of(lost)
    if isinstance(lost, network.NameResolutionError):
        return Cause.UNKNOWN_HOST
    if isinstance(lost, network.NewConnectionError):  # before TimeoutError, its base class
        return Cause.REFUSED
    if isinstance(lost, network.TimeoutError):
        return Cause.TIMEOUT
    return Cause.CUT


def _tls_cause_of(lost: BaseException) -> Cause:
    error = lost.args[0] if lost.args else None
    if not isinstance(error, ssl.SSLCertVerificationError):
        return Cause.NO_TLS
    if error.verify_code in _WRONG_NAME:
        return Cause.WRONG_NAME
    return Cause.WRONG_TIME if error.verify_code in _WRONG_TIME else Cause.UNTRUSTED
