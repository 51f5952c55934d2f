"""What may keep Perago from working on a lakeFS, from the settings to the branch."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perago.adapters.lakefs.reachability import Cause, Reached, Unreachable
from perago.doctor.finding import Finding, clock_difference
from perago.doctor.lakefs_trial import Trial
from perago.doctor.machine import problem_writing
from perago.errors import BranchNotFoundError, RuntimeConfigError, StoreAccessError, StoreError
from perago.formatting import count, duration, size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.adapters.lakefs.store import LakeFSStore
    from perago.errors import PeragoError
    from perago.model.commit import Commit
    from perago.operations.fence_install import FenceState
    from perago.settings import Settings


# --- Getting to a lakeFS and being let in: what each way of not getting there means ---
SQUASHING_VERSION = (1, 48)
"""The first that squashes merges: an older one ignores the wish, and merges with two parents."""
LISTING_VERSION = (1, 74)
"""The first that lists hidden branches, among which `perago gc` looks for leftovers."""
NOTICEABLE_SECONDS = 60.0
REFUSED_SECONDS = 15 * 60.0
"""lakeFS's S3 gateway refuses a request that was signed longer ago, or later, than this."""
_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_STRANGER = "error authenticating request"
_FIXES = {
    Cause.UNKNOWN_HOST: f"correct the host in {_ENDPOINT}, or the machine's DNS",
    Cause.REFUSED: f"start lakeFS (`perago stack up`), or correct {_ENDPOINT}",
    Cause.TIMEOUT: "see whether a firewall is in between, or whether lakeFS hangs",
    Cause.PROXY: "correct HTTP_PROXY or HTTPS_PROXY, or name the host in NO_PROXY",
    Cause.UNTRUSTED: "name the file with its authority's certificate by PERAGO_LAKEFS_CA_FILE",
    Cause.WRONG_NAME: f"put a name that is in the certificate into {_ENDPOINT}",
    Cause.WRONG_TIME: "have the certificate renewed, or set this machine's clock",
    Cause.NO_TLS: f"write http:// instead of https:// in {_ENDPOINT}",
    Cause.CUT: "see the log of lakeFS, or of whatever stands in front of it",
}


def proxy_in_use(config: LakeFSConfig) -> Finding:
    """No fault by itself, but who looks for one wants to know. Its password isn't shown."""
    try:
        proxy = config.proxy
    except RuntimeConfigError as error:
        return Finding("proxy", "fail", error.message, error.fix)
    if proxy is None:
        return Finding("proxy", "ok", "none for this address")
    parts = urlsplit(proxy)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return Finding("proxy", "ok", f"through {shown}, by the environment")


def judge_server(heard: Reached | Unreachable, endpoint: str) -> Finding:
    """Whether a lakeFS answers there: one that is asked without a key says that it wants one."""
    if isinstance(heard, Unreachable):
        detail = f"{endpoint}: {heard.cause.value}: {heard.detail}"
        return Finding("server", "fail", detail, _FIXES[heard.cause])
    if heard.status == 407:  # noqa: PLR2004 - HTTP's own numbers read best as they are
        fix = "give the proxy as http://NAME:PASSWORD@HOST:PORT"
        return Finding("server", "fail", "the proxy wants a password, or another one", fix)
    if heard.status == 400 and "HTTPS" in heard.body:  # noqa: PLR2004
        detail = f"{endpoint}: it wants TLS, and was asked without"
        fix = f"write https:// instead of http:// in {_ENDPOINT}"
        return Finding("server", "fail", detail, fix)
    if 300 <= heard.status < 400:  # noqa: PLR2004
        where = heard.location.partition("/api/v1")[0]
        detail = f"{endpoint}: it sends us on to {where}"
        return Finding("server", "fail", detail, f"put that address into {_ENDPOINT}")
    if heard.status >= 500:  # noqa: PLR2004
        detail = f"{endpoint}: status {heard.status} {_first_words(heard.body)}".rstrip()
        return Finding("server", "fail", detail, _FIXES[Cause.CUT])
    if heard.status != 401 or _STRANGER not in heard.body:  # noqa: PLR2004
        detail = (
            f"{endpoint}: something else than lakeFS answers there "
            f"(status {heard.status} {_first_words(heard.body)})"
        )
        fix = f"correct {_ENDPOINT}: host, port, and the path if lakeFS is below one"
        return Finding("server", "fail", detail, fix)
    return Finding("server", "ok", f"lakeFS answers at {endpoint} after {duration(heard.took)}")


def judge_clock(heard: Reached) -> Finding:
    """How far the server's clock is from ours."""
    ahead = clock_difference(heard.date, heard.asked_at + heard.took / 2)
    if ahead is None:
        return Finding("clock", "ok", "the server doesn't say what time it has")
    detail = f"the server's is {duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} ours"
    fix = "let both machines keep time (NTP)"
    if abs(ahead) > REFUSED_SECONDS:
        detail += f"; it refuses object transfers beyond {duration(REFUSED_SECONDS)}"
        return Finding("clock", "fail", detail, fix)
    if abs(ahead) > NOTICEABLE_SECONDS:
        return Finding("clock", "warn", detail, fix)
    return Finding("clock", "ok", "the server's and ours agree")


def judge_key(heard: Reached | Unreachable, key: str) -> Finding:
    """Whether it knows our key, now that it was shown."""
    if isinstance(heard, Unreachable):
        return Finding("key", "fail", f"{heard.cause.value}: {heard.detail}", _FIXES[heard.cause])
    if heard.status == 401:  # noqa: PLR2004
        detail = f"lakeFS doesn't accept the key {key!r} with this secret"
        fix = "correct LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
        return Finding("key", "fail", detail, fix)
    if heard.status != 200:  # noqa: PLR2004
        detail = f"asked with the key {key!r} it answers status {heard.status}"
        return Finding("key", "fail", f"{detail} {_first_words(heard.body)}", _FIXES[Cause.CUT])
    return Finding("key", "ok", f"{key} is known")


def judge_version(heard: Reached) -> Finding:
    """Whether the server is new enough for what is asked of it."""
    said = _version_said(heard.body)
    digits = re.match(r"(\d+)\.(\d+)", said)
    if digits is None:  # a development build
        return Finding("version", "ok", f"lakeFS {said or 'of no known version'}")
    found = (int(digits[1]), int(digits[2]))
    if found < SQUASHING_VERSION:
        detail = f"lakeFS {said} can't squash a merge, so no publication would be accepted"
        return Finding(
            "version", "fail", detail, f"update it to {_dotted(LISTING_VERSION)} or newer"
        )
    if found < LISTING_VERSION:
        detail = f"lakeFS {said} doesn't list hidden branches: `perago gc` misses some leftovers"
        return Finding(
            "version", "warn", detail, f"update it to {_dotted(LISTING_VERSION)} or newer"
        )
    return Finding("version", "ok", f"lakeFS {said}")


def _version_said(body: str) -> str:
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
    """Go the way of a publication, and no further than where it ends.

    A failed step explains the ones after it, so they aren't tried. Without a repository it ends at
    the server; without a branch it is about the repository's default one.
    """
    try:
        for step in _steps(settings, repository, branch):
            failed = False
            for finding in step:
                yield finding
                failed = failed or finding.verdict == "fail"
            if failed:
                return
    except (StoreError, RuntimeConfigError) as error:
        yield _failure("lakeFS", error)


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
        yield iter([_failure("settings", error)])
        return
    yield _server(config)
    # Without the cache: what is tried here isn't worth keeping.
    with closing(LakeFSStore(config)) as store:
        if repository is None:
            yield _repositories(store)
            return
        try:
            branch = branch or store.default_branch(repository)
            head = store.head(repository, branch)
        except StoreError as error:
            name = "branch" if isinstance(error, BranchNotFoundError) else "repository"
            yield iter([_failure(name, error)])
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
    place = settings.object_cache
    if not settings.cache_bytes:
        yield Finding("cache", "ok", "switched off: every attempt fetches all of its objects")
    elif problem := problem_writing(place):
        fix = "point PERAGO_CACHE at a directory this user can write"
        yield Finding("cache", "fail", f"{place}: {problem}", fix)
    elif (free := shutil.disk_usage(place).free) < settings.cache_bytes:
        detail = f"{place} may grow to {size(settings.cache_bytes)}, and its disk has {size(free)}"
        yield Finding("cache", "warn", detail, "set PERAGO_CACHE_BYTES lower, or move PERAGO_CACHE")
    else:
        yield Finding("cache", "ok", f"{place}, up to {size(settings.cache_bytes)}")


def _server(config: LakeFSConfig) -> Iterator[Finding]:
    from perago.adapters.lakefs.reachability import Reached, reach

    proxy = proxy_in_use(config)
    yield proxy
    if proxy.verdict == "fail":
        return
    heard = reach(config, authenticated=False)
    server = judge_server(heard, config.endpoint)
    yield server
    if server.verdict == "fail" or not isinstance(heard, Reached):
        return
    yield judge_clock(heard)
    let_in = reach(config, authenticated=True)
    key = judge_key(let_in, config.access_key_id)
    yield key
    if key.verdict == "ok" and isinstance(let_in, Reached):
        yield judge_version(let_in)


def _repositories(store: LakeFSStore) -> Iterator[Finding]:
    look = "`--repository NAME` has one looked into, with its permissions"
    try:
        found = store.repositories()
    except StoreAccessError:
        yield Finding("repository", "ok", f"this key may not list them, nor need it; {look}")
    except StoreError as error:
        yield _failure("repository", error)
    else:
        yield Finding("repository", "ok", f"{count(len(found), 'repository')}; {look}")


def _branch(store: LakeFSStore, repository: str, branch: str) -> Iterator[Finding]:
    yield Finding("repository", "ok", repository)
    try:
        dirty = store.uncommitted(repository, branch, limit=_SHOWN_KEYS + 1)
    except StoreError as error:
        yield _failure("branch", error)
        return
    if not dirty:
        yield Finding("branch", "ok", f"{branch}, with nothing uncommitted")
        return
    named = ", ".join(map(repr, dirty[:_SHOWN_KEYS]))
    more = " and more" if len(dirty) > _SHOWN_KEYS else ""
    detail = f"{branch!r} has uncommitted objects, so nothing can be published: {named}{more}"
    fix = f"commit them, or drop them: `lakectl branch reset lakefs://{repository}/{branch}`"
    yield Finding("branch", "fail", detail, fix)


def _fence(
    store: LakeFSStore, level: str, repository: str, branch: str, head: Commit
) -> Iterator[Finding]:
    from perago.operations.fence_install import probe_fence

    try:
        state = probe_fence(store, repository, head.id)
    except StoreError as error:
        yield _failure("fence", error)
    else:
        yield judge_fence(state, level, repository, branch)


def judge_fence(state: FenceState, level: str, repository: str, branch: str) -> Finding:
    """How bad it is that merges aren't fenced depends on the level that was asked for."""
    from perago.operations.fence_install import FenceState

    install = f"`perago fence install {repository} --branch {branch}`"
    what, fix = {
        FenceState.ENFORCED: ("in place, and a merge onto a wrong head is refused", None),
        FenceState.MISSING: (f"there is none on {branch!r}", install),
        FenceState.DIFFERENT: ("there is one, but not this version's", f"{install} replaces it"),
        FenceState.SWITCHED_OFF: (
            "it is in place, but the server doesn't run actions",
            "set actions.enabled to true in the server's configuration",
        ),
    }[state]
    if state is FenceState.ENFORCED:
        return Finding("fence", "ok", what)
    if level == "soft":
        return Finding("fence", "ok", f"{what}; PERAGO_PUBLISH_FENCE=soft doesn't ask for it")
    if level == "cas":
        return Finding("fence", "fail", f"{what}, and PERAGO_PUBLISH_FENCE=cas demands it", fix)
    detail = f"{what}: a merge that lands on a wrong head is noticed, but not prevented"
    return Finding("fence", "warn", detail, fix)


def _failure(name: str, error: PeragoError) -> Finding:
    return Finding(name, "fail", error.message, error.fix or "see the log of lakeFS")
