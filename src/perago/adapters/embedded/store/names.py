"""Which names a repository, a branch and an object may have: lakeFS's rules, so that they move."""

from __future__ import annotations

import re

from perago.errors import RuntimeConfigError, StoreRefusedError

_REPOSITORY = re.compile(r"[a-z0-9][a-z0-9-]{2,62}")
_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)


def check_repository_name(name: str) -> None:
    """Raises :class:`RuntimeConfigError` for a name no repository can have."""
    if not _REPOSITORY.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} can't be the name of a repository",
            fix="use 3 to 63 lower-case letters, digits and '-', not starting with '-'",
        )


def check_branch_name(name: str) -> None:
    """Raises :class:`RuntimeConfigError` for a name no branch can have."""
    if not _BRANCH.fullmatch(name):
        raise RuntimeConfigError(
            f"{name!r} can't be the name of a branch",
            fix="use letters, digits, '_' and '-', not starting with '-'",
        )


def check_key(key: str) -> None:
    """Raises :class:`StoreRefusedError` for a key that is no text; any other one may be stored."""
    if not key:
        problem = "it is empty"
    elif "\0" in key:
        problem = "it contains a NUL character"
    elif any("\ud800" <= character <= "\udfff" for character in key):
        problem = "it contains half a character (an unpaired surrogate)"
    else:
        return
    raise StoreRefusedError(
        f"object key {key!r} can't be stored: {problem}", fix="give that object another name"
    )
