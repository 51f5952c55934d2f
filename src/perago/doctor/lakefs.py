"""Checks of a lakeFS, from the settings to the branch that would be published to."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from http import HTTPStatus
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.adapters.lakefs.reachability import Cause, Reached, Unreachable
from perago.doctor.finding import NOTICEABLE_SECONDS, Finding, clock_difference
from perago.doctor.lakefs_trial import Trial
from perago.doctor.machine import write_problem
from perago.errors import BranchNotFoundError, RuntimeConfigError, StoreAccessError, StoreError
from perago.formatting import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.adapters.lakefs.store import LakeFSStore
    from perago.model.commit import Commit
    from perago.operations.fence_install import FenceState
    from perago.settings import Settings


SQUASHING_VERSION = (1, 48)
"""The first that can squash merges: an older one ignores the option, and makes two parents."""
LISTING_VERSION = (1, 74)
"""The first that lists hidden branches, among which `perago gc` looks for leftovers."""
REFUSED_SECONDS = 15 * 60.0
"""lakeFS's S3 gateway refuses a request whose time of signing differs by more than this."""
_SEE_LOG = "see the log of lakeFS"
_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_UNAUTHENTICATED = "error authenticating request"
_FIXES = {
    Cause.UNKNOWN_HOST: f"correct the host in {_ENDPOINT}, or the machine's DNS",
    Cause.REFUSED: f"start lakeFS (`perago stack up`), or correct {_ENDPOINT}",
    Cause.TIMEOUT: "check for a firewall in between, and whether lakeFS hangs",
    Cause.PROXY: "correct HTTP_PROXY or HTTPS_PROXY, or name the host in NO_PROXY",
    Cause.UNTRUSTED: "set PERAGO_LAKEFS_CA_FILE to the CA bundle that signed its certificate",
    Cause.WRONG_NAME: f"put a name that is in the certificate into {_ENDPOINT}",
    Cause.WRONG_TIME: "renew the certificate, or set this machine's clock",
    Cause.NO_TLS: f"write http:// instead of https:// in {_ENDPOINT}",
    Cause.CUT: "see the log of lakeFS, or of the proxy in front of it",
}


def proxy_in_use(config: LakeFSConfig) -> Finding:
    """Which proxy is used; its password isn't shown."""
    try:
        proxy = config.proxy
    except RuntimeConfigError as error:
        return Finding.of_error("proxy", error)
    if proxy is None:
        return Finding("proxy", "ok", "none for this address")
    parts = urlsplit(proxy)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return Finding("proxy", "ok", f"{shown}, from the environment")


def judge_server(answer: Reached | Unreachable, endpoint: str) -> Finding:
    """Whether lakeFS answers: without a key, it answers that it needs one."""
    if isinstance(answer, Unreachable):
        detail = f"{endpoint}: {answer.cause.value}: {answer.detail}"
        return Finding("server", "fail", detail, _FIXES[answer.cause])
    if answer.status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        fix = "give the proxy as http://NAME:PASSWORD@HOST:PORT"
        return Finding("server", "fail", "the proxy rejects our password, or needs one", fix)
    if answer.status == HTTPStatus.BAD_REQUEST and "HTTPS" in answer.body:
        detail = f"{endpoint}: the server needs TLS"
        fix = f"write https:// instead of http:// in {_ENDPOINT}"
        return Finding("server", "fail", detail, fix)
    if answer.status // 100 == 3:  # noqa: PLR2004 - a redirection
        where = answer.location.partition("/api/v1")[0]
        detail = f"{endpoint}: redirects to {where}"
        return Finding("server", "fail", detail, f"set {_ENDPOINT} to that address")
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        detail = f"{endpoint}: status {answer.status} {_first_words(answer.body)}".rstrip()
        return Finding("server", "fail", detail, _FIXES[Cause.CUT])
    if answer.status != HTTPStatus.UNAUTHORIZED or _UNAUTHENTICATED not in answer.body:
        detail = (
            f"{endpoint}: another program than lakeFS answers "
            f"(status {answer.status} {_first_words(answer.body)})"
        )
        fix = f"correct {_ENDPOINT}: host, port, and the path if lakeFS is below one"
        return Finding("server", "fail", detail, fix)
    return Finding("server", "ok", f"lakeFS answers at {endpoint} after {duration(answer.took)}")


def judge_clock(answer: Reached) -> Finding:
    """Whether the server's clock agrees with ours."""
    ahead = clock_difference(answer.date, answer.asked_at + answer.took / 2)
    if ahead is None:
        return Finding("clock", "ok", "unknown: the server sends no time")
    detail = f"the server's is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} ours"
    fix = "synchronise both clocks (NTP)"
    if abs(ahead) > REFUSED_SECONDS:
        detail += f"; it refuses object transfers beyond {duration(REFUSED_SECONDS)}"
        return Finding("clock", "fail", detail, fix)
    if abs(ahead) > NOTICEABLE_SECONDS:
        return Finding("clock", "warn", detail, fix)
    return Finding("clock", "ok", "the server's and ours agree")


def judge_key(answer: Reached | Unreachable, key: str) -> Finding:
    """Whether lakeFS accepts our key."""
    if isinstance(answer, Unreachable):
        return Finding(
            "key", "fail", f"{answer.cause.value}: {answer.detail}", _FIXES[answer.cause]
        )
    if answer.status == HTTPStatus.UNAUTHORIZED:
        detail = f"lakeFS doesn't accept the key {key!r} with this secret"
        fix = "correct LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
        return Finding("key", "fail", detail, fix)
    if answer.status != HTTPStatus.OK:
        detail = f"with the key {key!r} it answers status {answer.status}"
        return Finding("key", "fail", f"{detail} {_first_words(answer.body)}", _FIXES[Cause.CUT])
    return Finding("key", "ok", f"{key} is accepted")


def judge_version(answer: Reached) -> Finding:
    """Whether the server is new enough for Perago."""
    version = _version_in(answer.body)
    digits = re.match(r"(\d+)\.(\d+)", version)
    if digits is None:  # a development build
        return Finding("version", "ok", f"lakeFS {version or 'of no known version'}")
    found = (int(digits[1]), int(digits[2]))
    if found < SQUASHING_VERSION:
        detail = f"lakeFS {version} can't squash a merge, so no publication would be accepted"
        return Finding(
            "version", "fail", detail, f"update it to {_dotted(LISTING_VERSION)} or newer"
        )
    if found < LISTING_VERSION:
        detail = f"lakeFS {version} doesn't list hidden branches: `perago gc` misses some leftovers"
        return Finding(
            "version", "warn", detail, f"update it to {_dotted(LISTING_VERSION)} or newer"
        )
    return Finding("version", "ok", f"lakeFS {version}")


def _version_in(body: str) -> str:
    try:
        return str(json.loads(body)["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _first_words(body: str) -> str:
    return " ".join(body.split())[:60]


_CLIENTS = ("lakefs_sdk", "obstore")
_SHOWN_KEYS = 5


def diagnose_lakefs(
    settings: Settings, repository: str | None, branch: str | None
) -> Iterator[Finding]:
    """Check what a publication needs, step by step, until a step fails.

    Without ``repository``, only up to the server. ``branch`` defaults to the repository's own.
    """
    try:
        for step in _steps(settings, repository, branch):
            failed = False
            for finding in step:
                yield finding
                failed = failed or finding.failed
            if failed:
                return
    except (StoreError, RuntimeConfigError) as error:
        yield Finding.of_error("lakeFS", error, _SEE_LOG)


def _steps(
    settings: Settings, repository: str | None, branch: str | None
) -> Iterator[Iterator[Finding]]:
    from perago.adapters.lakefs.store import LakeFSStore
    from perago.wiring import lakefs_config

    yield _clients()
    yield _cache(settings)
    try:
        config = lakefs_config(settings)
    except RuntimeConfigError as error:
        yield iter([Finding.of_error("settings", error, _SEE_LOG)])
        return
    yield _server(config)
    # Without the cache, which would keep what is only tried here.
    with closing(LakeFSStore(config)) as store:
        if repository is None:
            yield _repositories(store)
            return
        try:
            branch = branch or store.default_branch(repository)
            head = store.head(repository, branch)
        except StoreError as error:
            name = "branch" if isinstance(error, BranchNotFoundError) else "repository"
            yield iter([Finding.of_error(name, error, _SEE_LOG)])
            return
        yield _branch(store, repository, branch)
        yield iter(Trial(store, repository, branch, head).run())
        yield _fence(store, settings.publish_fence, repository, branch, head)


def _clients() -> Iterator[Finding]:
    problems = [problem for name in _CLIENTS if (problem := _problem_importing(name))]
    if problems:
        detail = f"can't be imported: {'; '.join(problems)}"
        yield Finding("clients", "fail", detail, "pip install 'perago-runtime[lakefs]'")
    else:
        yield Finding("clients", "ok", " and ".join(_CLIENTS))


def _problem_importing(name: str) -> str | None:
    try:
        import_module(name)
    except Exception as error:  # noqa: BLE001 - a broken installation may raise anything
        return f"{name} ({type(error).__name__}: {error})"
    return None


def _cache(settings: Settings) -> Iterator[Finding]:
    path = settings.object_cache
    if not settings.cache_bytes:
        yield Finding("cache", "ok", "off: every attempt fetches all of its objects")
    elif problem := write_problem(path):
        fix = "set PERAGO_CACHE to a directory that this user can write"
        yield Finding("cache", "fail", f"{path}: {problem}", fix)
    elif (free := shutil.disk_usage(path).free) < settings.cache_bytes:
        detail = f"{path} may grow to {size(settings.cache_bytes)}; its disk has {size(free)} free"
        yield Finding("cache", "warn", detail, "set PERAGO_CACHE_BYTES lower, or move PERAGO_CACHE")
    else:
        yield Finding("cache", "ok", f"{path}, up to {size(settings.cache_bytes)}")


def _server(config: LakeFSConfig) -> Iterator[Finding]:
    from perago.adapters.lakefs.reachability import Reached, reach

    proxy = proxy_in_use(config)
    yield proxy
    if proxy.failed:
        return
    answer = reach(config, authenticated=False)
    server = judge_server(answer, config.endpoint)
    yield server
    if server.failed or not isinstance(answer, Reached):
        return
    yield judge_clock(answer)
    authenticated = reach(config, authenticated=True)
    key = judge_key(authenticated, config.access_key_id)
    yield key
    if key.verdict == "ok" and isinstance(authenticated, Reached):
        yield judge_version(authenticated)


def _repositories(store: LakeFSStore) -> Iterator[Finding]:
    look = "`--repository NAME` checks one, with its permissions"
    try:
        found = store.repositories()
    except StoreAccessError:
        yield Finding(
            "repository", "ok", f"this key may not list repositories, and needn't; {look}"
        )
    except StoreError as error:
        yield Finding.of_error("repository", error, _SEE_LOG)
    else:
        yield Finding("repository", "ok", f"{count(len(found), 'repository')}; {look}")


def _branch(store: LakeFSStore, repository: str, branch: str) -> Iterator[Finding]:
    yield Finding("repository", "ok", repository)
    try:
        dirty = store.uncommitted(repository, branch, limit=_SHOWN_KEYS + 1)
    except StoreError as error:
        yield Finding.of_error("branch", error, _SEE_LOG)
        return
    if not dirty:
        yield Finding("branch", "ok", f"{branch}, nothing uncommitted")
        return
    named = ", ".join(map(repr, dirty[:_SHOWN_KEYS]))
    more = " and more" if len(dirty) > _SHOWN_KEYS else ""
    detail = f"{branch!r} has uncommitted objects, so nothing can be published: {named}{more}"
    fix = f"commit them, or discard them: `lakectl branch reset lakefs://{repository}/{branch}`"
    yield Finding("branch", "fail", detail, fix)


def _fence(
    store: LakeFSStore, level: str, repository: str, branch: str, head: Commit
) -> Iterator[Finding]:
    from perago.operations.fence_install import probe_fence

    try:
        state = probe_fence(store, repository, head.id)
    except StoreError as error:
        yield Finding.of_error("fence", error, _SEE_LOG)
    else:
        yield judge_fence(state, level, repository, branch)


def judge_fence(state: FenceState, level: str, repository: str, branch: str) -> Finding:
    """A missing fence is a failure, a warning or fine, depending on PERAGO_PUBLISH_FENCE."""
    from perago.operations.fence_install import FenceState

    install = f"`perago fence install {repository} --branch {branch}`"
    what, fix = {
        FenceState.ENFORCED: ("enforced: a merge onto a wrong head is refused", None),
        FenceState.MISSING: (f"not installed on {branch!r}", install),
        FenceState.DIFFERENT: ("another version is installed", f"{install} replaces it"),
        FenceState.SWITCHED_OFF: (
            "installed, but the server doesn't run actions",
            "set actions.enabled to true in the server's configuration",
        ),
    }[state]
    if state is FenceState.ENFORCED:
        return Finding("fence", "ok", what)
    if level == "soft":
        return Finding("fence", "ok", f"{what}; PERAGO_PUBLISH_FENCE=soft doesn't need it")
    if level == "cas":
        return Finding("fence", "fail", f"{what}, and PERAGO_PUBLISH_FENCE=cas requires it", fix)
    detail = f"{what}: a merge onto a wrong head is detected, but not prevented"
    return Finding("fence", "warn", detail, fix)
