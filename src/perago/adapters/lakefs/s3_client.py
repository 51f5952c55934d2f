"""Clients of lakeFS's S3 gateway, and what its responses mean.

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


_REGION = "us-east-1"  # lakeFS accepts any; its own clients use this one
_STATUS = re.compile(r"status code: (\d{3})")
_ERROR = re.compile(r"<Code>([^<]*)</Code>\s*<Message>([^<]*)</Message>")
_KIND = re.compile(r"kind: (Connect|Timeout|Interrupted|Request|Decode)\b")
_NOT_FOUND = 404
_ACCESS = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class RequestTimeouts:
    """Seconds for the next bytes of a response, and for a whole request.

    ``part_retries`` is how often ``obstore`` repeats the requests of a large upload: its parts are
    sent by ``obstore``, so only it can retry one of them.
    """

    read: float
    request: float
    part_retries: int = 0


class S3Clients:
    """``obstore`` clients, one for each repository and time-outs; each has its own connections."""

    def __init__(self, config: LakeFSConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._stores: dict[tuple[str, RequestTimeouts], S3Store] = {}

    def get(self, repository: str, timeouts: RequestTimeouts) -> S3Store:
        with self._lock:
            store = self._stores.get((repository, timeouts))
            if store is None:
                store = _connect(self._config, repository, timeouts)
                self._stores[repository, timeouts] = store
            return store

    def close(self) -> None:
        """Drop the clients; the next use creates new ones."""
        with self._lock:
            self._stores = {}


def load_obstore() -> None:
    """Import obstore. Raises RuntimeConfigError if it isn't installed."""
    try:
        import obstore.store  # noqa: F401 - loading it is the point
    except ImportError as missing:
        raise RuntimeConfigError(
            f"obstore, the client of lakeFS's S3 gateway, isn't installed: {missing}",
            fix="pip install 'perago-runtime[lakefs]'",
        ) from missing


def _connect(config: LakeFSConfig, repository: str, timeouts: RequestTimeouts) -> S3Store:
    load_obstore()
    from obstore.store import S3Store

    def credentials() -> S3Credential:  # as arguments, obstore would add AWS_SESSION_TOKEN
        return {
            "access_key_id": config.access_key_id,
            "secret_access_key": config.secret_access_key,
            "expires_at": None,
        }

    return S3Store(
        repository,
        # Set explicitly: otherwise obstore takes each of these from an AWS_… variable.
        endpoint=config.endpoint,
        aws_endpoint_url_s3=config.endpoint,
        region=_REGION,
        virtual_hosted_style_request=False,
        skip_signature=False,
        s3_express=False,
        request_payer=False,
        # The response's ETag is compared with our own hash, so a signed hash adds nothing.
        unsigned_payload=True,
        credential_provider=credentials,
        client_options=_client_options(config, timeouts),
        retry_config={
            "max_retries": timeouts.part_retries,
            "retry_timeout": timedelta(seconds=timeouts.request),
        },
    )


def _client_options(config: LakeFSConfig, timeouts: RequestTimeouts) -> ClientConfig:
    options: ClientConfig = {
        "allow_http": config.endpoint.startswith("http://"),
        "http1_only": True,
        "connect_timeout": timedelta(seconds=config.timeouts.connect),
        "read_timeout": timedelta(seconds=timeouts.read),
        "timeout": timedelta(seconds=timeouts.request),
    }
    if config.ca_file is not None:
        options["root_certificate"] = config.ca_file.read_bytes()
    # obstore would read the environment, too, but supports less of NO_PROXY than the API's client.
    # So it always gets a proxy; if there is none, also the exception for the endpoint.
    options["proxy_url"] = config.proxy or config.endpoint
    if config.proxy is None:
        options["proxy_excludes"] = urlsplit(config.endpoint).hostname or ""
    return options


@contextmanager
def translated_errors(doing: str, config: LakeFSConfig) -> Iterator[None]:
    """Turn the errors that ``obstore`` raises in the block into ours.

    After StoreUnavailableError a retry may help; any other error is a definite refusal.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, FileNotFoundError) as error:
        raise _error_for(str(error), doing, config) from None


def _error_for(text: str, doing: str, config: LakeFSConfig) -> StoreError:
    # The debug source repeats the message.
    text = text.partition("\n\nDebug source:")[0] if "status code" in text else text
    found = _STATUS.search(text)
    if found is None:
        return _no_answer(text, doing, config)
    status = int(found[1])
    error = _ERROR.search(text)
    reason = f"{error[1]}: {error[2]}" if error else f"status {status}"
    if status in _ACCESS:
        return StoreAccessError(
            f"{doing}: lakeFS rejects these credentials ({reason})",
            fix="check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY,"
            " and that user's permissions",
        )
    if status == _NOT_FOUND:
        return StoreRefusedError(
            f"{doing}: lakeFS has no such object or branch (status 404, {reason})"
        )
    if is_definite(status):
        return StoreRefusedError(f"{doing}: lakeFS refused (status {status}, {reason})")
    return StoreUnavailableError(
        f"{doing}: lakeFS failed (status {status}, {reason})",
        fix="check the server's health (`perago doctor --on lakefs`), then retry",
    )


def _no_answer(text: str, doing: str, config: LakeFSConfig) -> StoreUnavailableError:
    kind = _KIND.search(text)
    happened = {
        "Connect": "no connection to",
        "Timeout": "no response in time from",
    }.get(kind[1] if kind else "", "lost the connection to")
    if "certificate" in text.lower():
        return StoreUnavailableError(
            f"{doing}: the certificate of lakeFS at {config.endpoint} can't be verified",
            fix="set PERAGO_LAKEFS_CA_FILE to the certificate of the server's authority",
        )
    return StoreUnavailableError(
        f"{doing}: {happened} lakeFS at {config.endpoint}",
        fix="check that it is running (`perago doctor --on lakefs`), then retry",
    )
