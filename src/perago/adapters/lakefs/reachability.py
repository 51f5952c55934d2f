"""One request to whatever is at the server's address, told as it went.

Every other request is judged by what it was for. This one is for finding out why none gets through,
so it keeps apart what the others may treat alike.
"""

from __future__ import annotations

import ssl
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perago.adapters.lakefs.client import LakeFSConfig


_VERSION_PATH = "/config/version"  # asks for a user that is known, and for no permission
_BODY_LIMIT = 10_000
_WRONG_NAME = frozenset({62, 64})  # OpenSSL: the host name, the IP address doesn't match
_WRONG_TIME = frozenset({9, 10})  # OpenSSL: not valid yet, expired


class Cause(StrEnum):
    """Why there was no answer."""

    UNKNOWN_HOST = "the host's name isn't known"
    REFUSED = "nothing accepts connections there"
    TIMEOUT = "no answer in time"
    PROXY = "the proxy can't be used"
    UNTRUSTED = "its certificate isn't trusted"
    WRONG_NAME = "its certificate is for another name"
    WRONG_TIME = "its certificate is not valid now"
    NO_TLS = "it doesn't speak TLS"
    CUT = "the connection was cut"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer: why, and in the words of whoever noticed."""

    why: Cause
    detail: str


@dataclass(frozen=True, slots=True)
class Reached:
    """An answer, whoever gave it. ``date`` is its clock's, as it said; ``asked_at`` is ours."""

    status: int
    body: str
    date: str
    location: str
    asked_at: float
    took: float


def reach(config: LakeFSConfig, *, authenticated: bool) -> Reached | Unreachable:
    """Ask for the server's version, with our key or without showing it."""
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
            answer = pool.request(
                "GET",
                f"{config.api_url}{_VERSION_PATH}",
                headers=headers,
                redirect=False,
                retries=False,
                timeout=urllib3.Timeout(config.timeouts.connect, config.timeouts.read),
                preload_content=False,
            )
            body = answer.read(_BODY_LIMIT, decode_content=True)
    except (network.HTTPError, OSError) as lost:
        # A proxy's error is told as a tuple around what really happened.
        return Unreachable(_why(lost), str(getattr(lost, "original_error", lost)))
    return Reached(
        status=answer.status,
        body=body.decode(errors="replace"),
        date=answer.headers.get("Date", ""),
        location=answer.headers.get("Location", ""),
        asked_at=asked_at,
        took=time.time() - asked_at,
    )


def _pool_for(config: LakeFSConfig) -> Any:
    import urllib3

    ca_file = str(config.ca_file) if config.ca_file else None
    if config.proxy is None:
        return urllib3.PoolManager(ca_certs=ca_file)
    return urllib3.ProxyManager(config.proxy, proxy_headers=config.proxy_headers, ca_certs=ca_file)


def _why(lost: BaseException) -> Cause:
    from urllib3 import exceptions as network

    if isinstance(lost, network.ProxyError):
        return Cause.PROXY
    if isinstance(lost, network.SSLError):
        return _why_no_tls(lost)
    if isinstance(lost, network.NameResolutionError):
        return Cause.UNKNOWN_HOST
    if isinstance(lost, network.NewConnectionError):  # which urllib3 counts as a time-out, too
        return Cause.REFUSED
    if isinstance(lost, network.TimeoutError):
        return Cause.TIMEOUT
    return Cause.CUT


def _why_no_tls(lost: BaseException) -> Cause:
    cause = lost.args[0] if lost.args else None
    if not isinstance(cause, ssl.SSLCertVerificationError):
        return Cause.NO_TLS
    if cause.verify_code in _WRONG_NAME:
        return Cause.WRONG_NAME
    return Cause.WRONG_TIME if cause.verify_code in _WRONG_TIME else Cause.UNTRUSTED
