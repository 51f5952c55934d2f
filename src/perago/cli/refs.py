"""Finds the repository or commit that a command line names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from perago.errors import CommitNotFoundError, RepositoryNotFoundError, RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.model.commit import Commit
    from perago.ports.store import Store

DEFAULT_BRANCH = "main"
_NAMED_CANDIDATES = 5
_NAMED_REPOSITORIES = 20

repository_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--repository", "-r", help="The repository.  [default: the only one there is]"
)


def repository_name(name: str) -> str:
    """The default name of the repository of a pipeline or a directory."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain if len(plain) >= 3 else f"{plain or 'run'}-workspace"  # noqa: PLR2004 - store's rule


def resolve_repository(store: Store, given: str | None) -> str:
    """The named repository, else the only one.

    Raises RepositoryNotFoundError if it doesn't exist or the store is empty, and
    RuntimeConfigError, listing them, if there are several and none is named.
    """
    if given is not None:
        try:
            next(iter(store.branches(given)), None)
        except RepositoryNotFoundError as missing:
            known = store.repositories()
            listed = f"name one of: {_shortened(known)}" if known else "create one: `perago import`"
            raise RepositoryNotFoundError(missing.message, fix=listed) from None
        return given
    known = store.repositories()
    if not known:
        raise RepositoryNotFoundError(
            "the store has no repository yet",
            fix="create one with `perago run` or `perago import`, or name another --home",
        )
    if len(known) > 1:
        raise RuntimeConfigError(
            f"the store has {len(known)} repositories: {_shortened(known)}",
            fix=f"name one: --repository {known[0]}",
        )
    return known[0]


def _shortened(names: list[str]) -> str:
    """The first names: a server may have hundreds."""
    more = len(names) - _NAMED_REPOSITORIES
    listed = ", ".join(names[:_NAMED_REPOSITORIES])
    return f"{listed} and {more} more" if more > 0 else listed


def resolve_commit(store: Store, repository: str, ref: str) -> Commit:
    """The commit that REF names: a branch, a commit id, or an unambiguous start of one.

    ``REF~N`` is the commit N steps before, ``REF~`` the one before. Raises CommitNotFoundError,
    naming the candidates if there are several.
    """
    if before := re.fullmatch(r"(.+)~(\d*)", ref):
        return _ancestor(store, repository, before[1], int(before[2] or 1))
    try:
        return store.get_commit(repository, ref)
    except CommitNotFoundError:
        if not re.fullmatch(r"[0-9a-f]{4,64}", ref):
            raise
    found = [commit for commit in _all_commits(store, repository) if commit.id.startswith(ref)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommitNotFoundError(
            f"repository {repository!r} has no branch and no commit {ref!r}",
            fix="look for it in `perago history`",
        )
    named = ", ".join(commit.id for commit in found[:_NAMED_CANDIDATES])
    raise CommitNotFoundError(
        f"{len(found)} commits of {repository!r} start with {ref!r}: {named}",
        fix="give more of the id",
    )


def _ancestor(store: Store, repository: str, ref: str, steps: int) -> Commit:
    start = resolve_commit(store, repository, ref)
    *_, (reached, commit) = enumerate(store.history(repository, start.id, limit=steps + 1))
    if reached < steps:
        raise CommitNotFoundError(
            f"there is no {ref}~{steps}: {ref!r} has {reached} commits before it",
            fix="look for it in `perago history`",
        )
    return commit


def _all_commits(store: Store, repository: str) -> Iterator[Commit]:
    """Every commit that can be reached from a branch, once."""
    seen: set[str] = set()
    for branch in store.branches(repository):
        for commit in store.history(repository, branch.name):
            if commit.id in seen:
                break
            seen.add(commit.id)
            yield commit
