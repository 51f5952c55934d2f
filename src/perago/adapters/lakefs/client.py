"""The control plane: lakeFS's API through the official SDK, with time-outs on every request.

A failed read is retried for a few seconds. A mutation is sent once: the SDK's own retries of PUT
and DELETE are off.
"""

from __future__ import annotations

import json
import re
import threading
import time
from base64 import b64encode
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from perago.adapters.lakefs.responses import Request, is_definite, message_of, refusal, shortened
from perago.backoff import Backoff
from perago.errors import AnswerLostError, RuntimeConfigError, StoreUnavailableError
from perago.settings import API_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perago.errors import StoreError


T = TypeVar("T")
READ_BACKOFF = Backoff(first=0.1, longest=3.0, growth=3, attempts=5, jitter=0.5)
TRANSFER_BACKOFF = Backoff(first=0.2, longest=5.0, attempts=6, jitter=0.5)
PAGE = 1000
"""The most entries that lakeFS lists at a time."""
_CONNECTIONS = 16
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?")
_LOADING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds for a connection, for a read's response, and for a mutation's."""

    connect: float = 5.0
    read: float = 30.0
    mutation: float = 60.0


@dataclass(frozen=True, slots=True)
class LakeFSConfig:
    """One lakeFS server and our credentials there. ``endpoint`` is its address without a path.

    ``ca_file`` is a CA bundle used to verify the server. ``storage_namespace`` is where the
    repositories that we create keep their objects, each in a folder of its name.
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
        """The proxy that the environment sets for this server; None without one.

        Raises RuntimeConfigError if the value is not a usable proxy.
        """
        parts = urlsplit(self.endpoint)
        if proxy_bypass(parts.netloc):
            return None
        found = getproxies()
        url = found.get(parts.scheme) or found.get("all")
        return _usable_proxy(url, parts.scheme) if url else None

    @property
    def proxy_headers(self) -> dict[str, str]:
        """The proxy's password as a header: not all clients take it from the proxy's address."""
        parts = urlsplit(self.proxy or "")
        if not parts.username:
            return {}
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        return {"Proxy-Authorization": f"Basic {b64encode(login.encode()).decode()}"}


def _usable_proxy(value: str, scheme: str) -> str:
    url = value if "://" in value else f"http://{value}"
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]  # a password may stand before it
    if parts.scheme in ("http", "https") and _HOST.fullmatch(host):
        return url
    raise RuntimeConfigError(
        f"the proxy for {scheme} addresses, {parts.scheme}://{host}, can't be used",
        fix=f"give {scheme.upper()}_PROXY as http://HOST:PORT, or name lakeFS's host in NO_PROXY",
    )


class ApiClient:
    """Every request goes through :meth:`read`, :meth:`listing` or :meth:`mutate`.

    Their ``call`` is a function ``(sdk, **options)`` that calls one function of the SDK and passes
    the options on to it.
    """

    def __init__(self, config: LakeFSConfig) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._sdk: Any = None
        self._was_reached = False

    def close(self) -> None:
        """Close the connections; the next request connects again."""
        if self._sdk is not None:
            self._sdk.branches_api.api_client.rest_client.pool_manager.clear()
            self._sdk = None

    def read(self, request: Request, call: Callable[..., T]) -> T:
        """Send a read, with retries. Raises StoreUnavailableError, or the error of a refusal."""
        timeouts = (self._config.timeouts.connect, self._config.timeouts.read)
        for pause in READ_BACKOFF:
            try:
                return self._call(request, call, timeouts)
            except StoreUnavailableError:
                # If no request ever got through, the address is probably wrong.
                if not self._was_reached:
                    raise
            time.sleep(pause)
        return self._call(request, call, timeouts)

    def listing(
        self, request: Request, call: Callable[..., Any], *, amount: int = PAGE
    ) -> Iterator[dict[str, Any]]:
        """The entries of a listing, page by page as they are needed, as plain JSON.

        ``call`` uses the SDK's ``…_with_http_info``: a model for each entry would take longer.
        """
        page = {"after": "", "amount": amount, "_preload_content": False}
        while True:
            found = self.read(
                request,
                lambda sdk, **options: json.loads(call(sdk, **page, **options).raw_data),
            )
            yield from found["results"]
            if not found["pagination"]["has_more"]:
                return
            page["after"] = found["pagination"]["next_offset"]

    def mutate(
        self, request: Request, call: Callable[..., T], *, timeout: float | None = None
    ) -> T:
        """Send a mutation once.

        Raises AnswerLostError if it is unknown whether lakeFS applied it, and
        StoreUnavailableError if it was never sent.
        """
        timeouts = (self._config.timeouts.connect, timeout or self._config.timeouts.mutation)
        return self._call(request, call, timeouts, mutation=True)

    def _call(
        self,
        request: Request,
        call: Callable[..., T],
        timeouts: tuple[float, float],
        *,
        mutation: bool = False,
    ) -> T:
        sdk = self._connected()
        import urllib3.exceptions as network
        from lakefs_sdk.exceptions import ApiException

        was_reached = True
        try:
            return call(sdk, _request_timeout=timeouts)
        except ApiException as failed:
            body = failed.body if failed.body is not None else failed.reason
            status = failed.status or 0
            raise _error_for(status, message_of(body), request, mutation=mutation) from None
        except (network.NewConnectionError, network.ConnectTimeoutError, network.ProxyError) as no:
            was_reached = self._was_reached
            raise StoreUnavailableError(
                f"{request.doing}: no connection to lakeFS at {self._config.endpoint}: {no}",
                fix="start it, or correct LAKECTL_SERVER_ENDPOINT_URL",
            ) from no
        except (network.HTTPError, OSError, ValueError) as lost:
            why = f"{type(lost).__name__}: {lost}"
            raise _no_answer(request, why, mutation=mutation) from lost
        finally:
            self._was_reached = was_reached

    def _connected(self) -> Any:
        with self._lock:
            if self._sdk is None:
                self._sdk = _connect(self._config)
            return self._sdk


def _error_for(status: int, message: str, request: Request, *, mutation: bool) -> StoreError:
    if is_definite(status):
        return refusal(status, message, request)
    if status == 0 and "CERTIFICATE_VERIFY_FAILED" in message:  # nothing was sent, then
        return StoreUnavailableError(
            f"{request.doing}: lakeFS's certificate can't be verified: {message}",
            fix="set PERAGO_LAKEFS_CA_FILE to the certificate of the server's authority",
        )
    why = f"status {status}: {message}" if status else message
    return _no_answer(request, shortened(why), mutation=mutation)


def _no_answer(request: Request, why: str, *, mutation: bool) -> StoreError:
    if mutation:
        return AnswerLostError(f"{request.doing}: unknown whether lakeFS did it: {why}")
    return StoreUnavailableError(
        f"{request.doing}: lakeFS didn't answer: {why}",
        fix="check that it is running (`perago doctor --on lakefs`), then retry",
    )


class Retries:
    """Retries of reads and uploads, shared by the threads of one transfer.

    Once one of them has failed for good, the others stop waiting and fail too.
    """

    def __init__(self) -> None:
        self._over = threading.Event()

    def call(self, attempt: Callable[[], T]) -> T:
        """Raises StoreUnavailableError after the last attempt, and any other error at once."""
        try:
            for pause in TRANSFER_BACKOFF:
                try:
                    return attempt()
                except StoreUnavailableError:
                    if self._over.wait(pause):
                        raise
            return attempt()
        except BaseException:
            self._over.set()
            raise


def load_client() -> tuple[Any, Any]:
    """Import the SDK, which takes half a second; return its configuration and client classes.

    Raises RuntimeConfigError if a part of it is missing.
    """
    try:
        with _LOADING, _argument_checks_deferred():
            from lakefs_sdk import Configuration
            from lakefs_sdk.client import LakeFSClient
    except ImportError as missing:
        raise RuntimeConfigError(
            f"the lakeFS client isn't installed: {missing}",
            fix="pip install 'perago-runtime[lakefs]'",
        ) from missing
    return Configuration, LakeFSClient


@contextmanager
def _argument_checks_deferred() -> Iterator[None]:
    """Make the SDK build the argument checks of a function at the function's first call.

    It has hundreds of functions and we call a dozen. Building all checks takes longer than the rest
    of the import.
    """
    from pydantic import v1

    at_once = v1.validate_arguments

    def deferred(function: Callable[..., object]) -> Callable[..., object]:
        built = cache(lambda: at_once(function))

        @wraps(function)
        def checked(*given: object, **named: object) -> object:
            return built()(*given, **named)

        return checked

    v1.validate_arguments = deferred  # type: ignore[assignment]  # as the client uses it
    try:
        yield
    finally:
        v1.validate_arguments = at_once


def _connect(config: LakeFSConfig) -> Any:
    configuration, client = load_client()
    settings = configuration(
        host=config.api_url, username=config.access_key_id, password=config.secret_access_key
    )
    settings.retries = False
    settings.connection_pool_maxsize = _CONNECTIONS
    settings.ssl_ca_cert = str(config.ca_file) if config.ca_file else None
    settings.proxy = config.proxy
    settings.proxy_headers = config.proxy_headers
    return client(settings)


def models() -> Any:
    """The SDK's models. Only for use inside a ``call``: by then :func:`load_client` has run."""
    import lakefs_sdk.models

    return lakefs_sdk.models
