"""What lakeFS's answers mean: pure translation into this project's errors.

A status below 500 is a definite no. Anything else, or no answer at all, leaves it open whether a
mutation was applied.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from perago.errors import (
    BranchExistsError,
    BranchNotFoundError,
    CommitNotFoundError,
    HeadMovedError,
    RepositoryExistsError,
    RepositoryNotFoundError,
    StoreAccessError,
    StoreError,
    StoreRefusedError,
)

FENCE_REFUSAL = "perago fence:"
"""How the fence's own refusals begin, wherever the server puts them in its answer."""
_INSUFFICIENT = "insufficient permissions"  # lakeFS says 401 to users that it knows, too
_ACTION = re.compile(r"(?:not allowed|denied permission) to ([a-z]+:[A-Za-z]+)")
_MESSAGE_LIMIT = 400
_FIRST_SERVER_ERROR = 500
_NOT_NOW = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked, in the words an error is told with."""

    doing: str
    repository: str = ""
    branch: str = ""
    ref: str = ""


def is_definite(status: int) -> bool:
    """Whether an answer of this status means that nothing was changed."""
    return 0 < status < _FIRST_SERVER_ERROR and status not in _NOT_NOW


def message_of(body: str | bytes | None) -> str:
    """The server's own words, from the JSON it answers with or from whatever it sent instead."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else (body or "")
    try:
        found = json.loads(text)
        text = str(found["message"]) if isinstance(found, dict) and "message" in found else text
    except ValueError:
        pass
    return " ".join(text.split())


def shortened(message: str) -> str:
    """A message of a length that people read."""
    return message if len(message) <= _MESSAGE_LIMIT else f"{message[: _MESSAGE_LIMIT - 1]}…"


def refusal(status: int, whole_message: str, request: Request) -> StoreError:
    """The error for a definite no."""
    if FENCE_REFUSAL in whole_message:  # wherever it stands: other hooks may have failed before it
        words = whole_message[whole_message.index(FENCE_REFUSAL) :]
        return HeadMovedError(f"{request.doing}: {shortened(words)}")
    message = shortened(whole_message)
    if status == 401 and _INSUFFICIENT not in message:  # noqa: PLR2004 - HTTP's own numbers read best
        return StoreAccessError(
            f"lakeFS doesn't accept these credentials ({request.doing})",
            fix="check LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY",
        )
    if status in (401, 403):
        return _forbidden(message, request)
    if status == 404:  # noqa: PLR2004
        return _not_found(message, request)
    if status == 409 and "not unique" in message:  # noqa: PLR2004
        return _exists(request)
    return StoreRefusedError(f"{request.doing}: lakeFS refused: {message or f'status {status}'}")


def _forbidden(message: str, request: Request) -> StoreError:
    if "protected branch" in message:
        return StoreRefusedError(
            f"{request.doing}: branch {request.branch!r} is protected: {message}",
            fix="take the branch out of the repository's protection rules: replacing an abandoned "
            "commit needs a reset, which lakeFS never allows on a protected branch",
        )
    action = _ACTION.search(message)
    return StoreAccessError(
        f"these credentials may not do this ({request.doing}): {message}",
        fix=f"allow {action[1] if action else 'it'} in the lakeFS policy of this key's user; "
        "docs/how-to/secure-lakefs.md has the whole policy",
    )


def _not_found(message: str, request: Request) -> StoreError:
    if "repository not found" in message:
        return RepositoryNotFoundError(
            f"lakeFS has no repository {request.repository!r}",
            fix="create it, or name one that exists",
        )
    if "branch not found" in message or (request.branch and not request.ref):
        return BranchNotFoundError(
            f"repository {request.repository!r} has no branch {request.branch!r}",
            fix="create it, or name one that exists",
        )
    if not request.ref:
        return StoreRefusedError(
            f"{request.doing}: what answers there isn't lakeFS: {message or 'status 404'}",
            fix="correct LAKECTL_SERVER_ENDPOINT_URL; `perago doctor --on lakefs` looks closer",
        )
    return CommitNotFoundError(
        f"repository {request.repository!r} has no commit or branch {request.ref!r}",
        fix="look for it in `perago history`",
    )


def _exists(request: Request) -> StoreError:
    if request.branch:
        return BranchExistsError(
            f"repository {request.repository!r} has a branch {request.branch!r} already",
            fix="choose another name",
        )
    return RepositoryExistsError(
        f"lakeFS has a repository {request.repository!r} already", fix="choose another name"
    )
