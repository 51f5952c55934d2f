"""lakeFS's S3 gateway: the connections to it, and what its answers mean.

A repository is a bucket there, and an object's key is ``ref/key``.
"""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.adapters.lakefs.responses import is_definite
from perago.errors import (
    RuntimeConfigError,
    StoreAccessError,
    StoreRefusedError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore.store import ClientConfig, S3Credential, S3Store

    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.errors import StoreError


_REGION = "us-east-1"  # lakeFS signs with whatever it is told; this is what its own clients say
_STATUS = re.compile(r"status code: (\d{3})")
_SAID = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_KIND = re.compile(r"kind: (Connect|Timeout|Interrupted|Request|Decode)\b")
_NOT_FOUND = 404
_NO_ENTRY = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """Seconds. ``silence`` is how long the server may say nothing, ``request`` how long one takes.

    ``repeats`` is how often a part of a large upload is sent again: nobody else can do it there.
    """

    silence: float
    request: float
    repeats: int = 0


class Connections:
    """Clients of ``obstore``'s, each with connections of its own: made when first needed, kept."""

    def __init__(self, config: LakeFSConfig) -> None:
        self._config = config
        self._guard = threading.Lock()
        self._stores: dict[tuple[str, RequestTimeouts], S3Store] = {}

    def to(self, repository: str, timeouts: RequestTimeouts) -> S3Store:
        with self._guard:
            store = self._stores.get((repository, timeouts))
            if store is None:
                store = _connect(self._config, repository, timeouts)
                self._stores[repository, timeouts] = store
            return store

    def close(self) -> None:
        """Let go of them; the next use makes new ones."""
        with self._guard:
            self._stores = {}


def load_obstore() -> None:
    """Raises RuntimeConfigError if it isn't installed."""
    try:
        import obstore.store  # noqa: F401 - loading it is the point
    except ImportError as missing:
        raise RuntimeConfigError(
            f"obstore, which moves lakeFS's objects, isn't installed: {missing}",
            fix="pip install 'perago-runtime[lakefs]'",
        ) from missing


def _connect(config: LakeFSConfig, repository: str, timeouts: RequestTimeouts) -> S3Store:
    load_obstore()
    from obstore.store import S3Store

    def credentials() -> S3Credential:  # the other way to give them adds AWS_SESSION_TOKEN to them
        return {
            "access_key_id": config.access_key_id,
            "secret_access_key": config.secret_access_key,
            "expires_at": None,
        }

    return S3Store(
        repository,
        # Each of these would otherwise be taken from an AWS_… variable, if there is one.
        endpoint=config.endpoint,
        aws_endpoint_url_s3=config.endpoint,
        region=_REGION,
        virtual_hosted_style_request=False,
        skip_signature=False,
        s3_express=False,
        request_payer=False,
        # The answer's ETag is compared with our own hash: hashing for the signature adds nothing.
        unsigned_payload=True,
        credential_provider=credentials,
        client_options=_client_options(config, timeouts),
        retry_config={
            "max_retries": timeouts.repeats,
            "retry_timeout": timedelta(seconds=timeouts.request),
        },
    )


def _client_options(config: LakeFSConfig, timeouts: RequestTimeouts) -> ClientConfig:
    options: ClientConfig = {
        "allow_http": config.endpoint.startswith("http://"),
        "http1_only": True,
        "connect_timeout": timedelta(seconds=config.timeouts.connect),
        "read_timeout": timedelta(seconds=timeouts.silence),
        "timeout": timedelta(seconds=timeouts.request),
    }
    if config.ca_file is not None:
        options["root_certificate"] = config.ca_file.read_bytes()
    # Left to itself obstore reads the environment, too, and understands less of NO_PROXY than the
    # API's client does: it is always told of a proxy, and where there is none, not to use it.
    options["proxy_url"] = config.proxy or config.endpoint
    if config.proxy is None:
        options["proxy_excludes"] = urlsplit(config.endpoint).hostname or ""
    return options


@contextmanager
def asking(doing: str, config: LakeFSConfig) -> Iterator[None]:
    """Tells what ``obstore`` raises in the block as one of our errors.

    StoreUnavailableError is worth another try; anything else is a definite no.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as answer:
        raise _told(str(answer), doing, config) from None


def _told(answer: str, doing: str, config: LakeFSConfig) -> StoreError:
    # What follows is the same once more, for debuggers.
    answer = answer.partition("\n\nDebug source:")[0] if "status code" in answer else answer
    found = _STATUS.search(answer)
    if found is None:
        return _unanswered(answer, doing, config)
    status = int(found[1])
    said = _SAID.search(answer)
    words = f"{said[1]}: {said[2]}" if said else f"status {status}"
    if status in _NO_ENTRY:
        return StoreAccessError(
            f"{doing}: lakeFS doesn't let these credentials do it ({words})",
            fix="check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY,"
            " and that user's permissions",
        )
    if status == _NOT_FOUND:
        return StoreRefusedError(f"{doing}: lakeFS has no such thing (status 404, {words})")
    if is_definite(status):
        return StoreRefusedError(f"{doing}: lakeFS refused (status {status}, {words})")
    return StoreUnavailableError(
        f"{doing}: lakeFS couldn't (status {status}, {words})",
        fix="see whether it is well (`perago doctor --on lakefs`), then try again",
    )


def _unanswered(answer: str, doing: str, config: LakeFSConfig) -> StoreUnavailableError:
    kind = _KIND.search(answer)
    happened = {
        "Connect": "no connection to",
        "Timeout": "no answer in time from",
    }.get(kind[1] if kind else "", "the connection was cut to")
    if "certificate" in answer.lower():
        return StoreUnavailableError(
            f"{doing}: the certificate of lakeFS at {config.endpoint} wasn't accepted",
            fix="name the authority's certificate by PERAGO_LAKEFS_CA_FILE",
        )
    return StoreUnavailableError(
        f"{doing}: {happened} lakeFS at {config.endpoint}",
        fix="see whether it is up (`perago doctor --on lakefs`), then try again",
    )
