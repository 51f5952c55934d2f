"""The control plane: lakeFS's official client, with time-outs and without surprises.

A read is tried again for a while when it can't be answered. A mutation is sent once: the client's
own habit of sending PUT and DELETE again is switched off.
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


# --- Where a lakeFS is, who we are there, and how we get there: the same for both of its ---
_HOST = re.compile(r"([\w.-]+|\[[0-9a-fA-F:.]+\])(:\d+)?")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. A read is per request; a mutation's answer is given up after its own."""

    connect: float = 5.0
    read: float = 30.0
    mutation: float = 60.0


@dataclass(frozen=True, slots=True)
class LakeFSConfig:
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


# --- Trying again what failed for now: for reads and uploads, which do no harm twice ---
T = TypeVar("T")
TRANSFER_BACKOFF = Backoff(first=0.2, longest=5.0, attempts=6, jitter=0.5)


class Retries:
    """For one transfer: once an attempt has failed for good, nobody else waits for another."""

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


READ_BACKOFF = Backoff(first=0.1, longest=3.0, growth=3, attempts=5, jitter=0.5)
PAGE = 1000
"""What lakeFS lists at most at a time."""
_CONNECTIONS = 16
_LOADING = threading.Lock()


class ApiClient:
    """``client`` is lakeFS's own; every call through :meth:`read` or :meth:`mutate`.

    Both hand the time-outs to the call, which passes them on to the client.
    """

    def __init__(self, config: LakeFSConfig) -> None:
        self._config = config
        self._guard = threading.Lock()
        self._client: Any = None
        self._got_through = False

    def close(self) -> None:
        if self._client is not None:
            pool = self._client.branches_api.api_client.rest_client.pool_manager
            pool.clear()
            self._client = None

    def read(self, request: Request, call: Callable[[Any, tuple[float, float]], T]) -> T:
        """Ask, again if need be. Raises StoreUnavailableError, or what a definite no means."""
        timeouts = (self._config.timeouts.connect, self._config.timeouts.read)
        for pause in READ_BACKOFF:
            try:
                return self._call(request, call, timeouts)
            except StoreUnavailableError:
                # Who never got through has a wrong address, more likely than a bad moment.
                if not self._got_through:
                    raise
            time.sleep(pause)
        return self._call(request, call, timeouts)

    def mutate(
        self,
        request: Request,
        call: Callable[[Any, tuple[float, float]], T],
        *,
        timeout: float | None = None,
    ) -> T:
        """Ask once. Raises AnswerLostError if there is no telling whether it was applied.

        StoreUnavailableError says that it was never sent.
        """
        timeouts = (self._config.timeouts.connect, timeout or self._config.timeouts.mutation)
        return self._call(request, call, timeouts, mutation=True)

    def pages(
        self, request: Request, call: Callable[[Any, str, tuple[float, float]], Any]
    ) -> Iterator[list[dict[str, Any]]]:
        """Every page of a listing, as plain values: a model for each object would take longer.

        ``call`` is given the offset to go on from, and must ask for the answer undecoded.
        """
        after = ""
        while True:

            def ask(client: Any, timeouts: tuple[float, float], after: str = after) -> Any:
                return json.loads(call(client, after, timeouts).raw_data)

            page = self.read(request, ask)
            yield page["results"]
            if not page["pagination"]["has_more"]:
                return
            after = page["pagination"]["next_offset"]

    def _call(
        self,
        request: Request,
        call: Callable[[Any, tuple[float, float]], T],
        timeouts: tuple[float, float],
        *,
        mutation: bool = False,
    ) -> T:
        client = self._connected()
        import urllib3.exceptions as network
        from lakefs_sdk.exceptions import ApiException

        got_through = True
        try:
            return call(client, timeouts)
        except ApiException as answer:
            body = answer.body if answer.body is not None else answer.reason
            raise _told(answer.status or 0, message_of(body), request, mutation=mutation) from None
        except (network.NewConnectionError, network.ConnectTimeoutError, network.ProxyError) as no:
            got_through = self._got_through
            raise StoreUnavailableError(
                f"{request.doing}: no connection to lakeFS at {self._config.endpoint}: {no}",
                fix="start it, or correct LAKECTL_SERVER_ENDPOINT_URL",
            ) from no
        except (network.HTTPError, OSError, ValueError) as lost:
            raise _unanswered(request, f"{type(lost).__name__}: {lost}", mutation) from lost
        finally:
            self._got_through = got_through

    def _connected(self) -> Any:
        with self._guard:
            if self._client is None:
                self._client = _client_for(self._config)
            return self._client


def _told(status: int, message: str, request: Request, *, mutation: bool) -> StoreError:
    if is_definite(status):
        return refusal(status, message, request)
    if status == 0 and "CERTIFICATE_VERIFY_FAILED" in message:  # nothing was sent, then
        return StoreUnavailableError(
            f"{request.doing}: lakeFS's certificate wasn't accepted: {message}",
            fix="name the authority's certificate by PERAGO_LAKEFS_CA_FILE",
        )
    why = f"status {status}: {message}" if status else message
    return _unanswered(request, shortened(why), mutation)


def _unanswered(request: Request, why: str, mutation: bool) -> StoreError:  # noqa: FBT001 - private
    if mutation:
        return AnswerLostError(f"{request.doing}: no telling whether lakeFS did it: {why}")
    return StoreUnavailableError(
        f"{request.doing}: lakeFS didn't answer: {why}",
        fix="see whether it is up (`perago doctor --on lakefs`), then try again",
    )


def load_client() -> tuple[Any, Any]:
    """Import the official client, which takes half a second: its configuration, and itself.

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
    """What is imported here builds the checks of a function's arguments at its first call.

    The client has hundreds of functions and we call a dozen: building all would take longer than
    the rest of the import.
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


def _client_for(config: LakeFSConfig) -> Any:
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
