"""What may keep Perago from working on a lakeFS, from the settings to the branch."""

from __future__ import annotations

import shutil
from contextlib import closing
from importlib import import_module
from typing import TYPE_CHECKING

from perago.cli.diagnosis import Finding, problem_writing
from perago.cli.lakefs_reach import (
    judge_clock,
    judge_key,
    judge_server,
    judge_version,
    proxy_in_use,
)
from perago.cli.lakefs_trial import Trial
from perago.cli.phrasing import count, size
from perago.errors import BranchNotFoundError, RuntimeConfigError, StoreAccessError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.adapters.lakefs.access import LakeFSAccess
    from perago.adapters.lakefs.adapter import LakeFSStore
    from perago.errors import PeragoError
    from perago.model.commit import Commit
    from perago.operations.fencing import FenceState
    from perago.settings import Settings

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
    from perago.adapters.lakefs.adapter import LakeFSStore
    from perago.wiring import lakefs_access

    yield _clients()
    yield _cache(settings)
    try:
        access = lakefs_access(settings)
    except RuntimeConfigError as error:
        yield iter([_failure("settings", error)])
        return
    yield _server(access)
    # Without the cache: what is tried here isn't worth keeping.
    with closing(LakeFSStore(access)) as store:
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


def _server(access: LakeFSAccess) -> Iterator[Finding]:
    from perago.adapters.lakefs.greeting import Greeting, greet

    proxy = proxy_in_use(access)
    yield proxy
    if proxy.verdict == "fail":
        return
    heard = greet(access, as_user=False)
    server = judge_server(heard, access.endpoint)
    yield server
    if server.verdict == "fail" or not isinstance(heard, Greeting):
        return
    yield judge_clock(heard)
    let_in = greet(access, as_user=True)
    key = judge_key(let_in, access.access_key_id)
    yield key
    if key.verdict == "ok" and isinstance(let_in, Greeting):
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
    from perago.operations.fencing import probe_fence

    try:
        state = probe_fence(store, repository, head.id)
    except StoreError as error:
        yield _failure("fence", error)
    else:
        yield judge_fence(state, level, repository, branch)


def judge_fence(state: FenceState, level: str, repository: str, branch: str) -> Finding:
    """How bad it is that merges aren't fenced depends on the level that was asked for."""
    from perago.operations.fencing import FenceState

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
