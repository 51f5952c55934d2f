"""What the responses of lakeFS's API mean: errors of our tree. No I/O.

A status below 500 is a definite refusal. With any other failure it is unknown whether lakeFS
applied a mutation.
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
"""The start of the fence's own refusals, which the server puts somewhere in its message."""
_INSUFFICIENT = "insufficient permissions"  # lakeFS returns 401 also to known users
_ACTION = re.compile(r"(?:not allowed|denied permission) to ([a-z]+:[A-Za-z]+)")
_MESSAGE_LIMIT = 400
_FIRST_SERVER_ERROR = 500
_RETRYABLE = frozenset({408, 429})


@dataclass(frozen=True, slots=True)
class Request:
    """What a request is for: ``doing`` in words, and the things it names, for error messages."""

    doing: str
    repository: str = ""
    branch: str = ""
    ref: str = ""


def is_definite(status: int) -> bool:
    """Whether a response with this status means that lakeFS changed nothing."""
    return 0 < status < _FIRST_SERVER_ERROR and status not in _RETRYABLE


def message_of(body: str | bytes | None) -> str:
    """The server's own message: from its JSON, or else the text of the body."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else (body or "")
    try:
        found = json.loads(text)
        text = str(found["message"]) if isinstance(found, dict) and "message" in found else text
    except ValueError:
        pass
    return " ".join(text.split())


def shortened(message: str) -> str:
    """A message, cut to a readable length."""
    return message if len(message) <= _MESSAGE_LIMIT else f"{message[: _MESSAGE_LIMIT - 1]}…"


def refusal(status: int, whole_message: str, request: Request) -> StoreError:
    """The error for a definite refusal."""
    if FENCE_REFUSAL in whole_message:  # anywhere: other hooks may have failed before it
        reason = whole_message[whole_message.index(FENCE_REFUSAL) :]
        return HeadMovedError(f"{request.doing}: {shortened(reason)}")
    message = shortened(whole_message)
    if status == 401 and _INSUFFICIENT not in message:  # noqa: PLR2004 - HTTP's own numbers read best
        return StoreAccessError(
            f"{request.doing}: lakeFS rejects these credentials",
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
            fix="remove the branch from the repository's protection rules: replacing an abandoned "
            "commit needs a reset, which lakeFS refuses on a protected branch",
        )
    action = _ACTION.search(message)
    return StoreAccessError(
        f"{request.doing}: these credentials have no permission: {message}",
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
            f"{request.doing}: the server isn't lakeFS: {message or 'status 404'}",
            fix="correct LAKECTL_SERVER_ENDPOINT_URL; `perago doctor --on lakefs` checks it",
        )
    return CommitNotFoundError(
        f"repository {request.repository!r} has no commit or branch {request.ref!r}",
        fix="look for it in `perago history`",
    )


def _exists(request: Request) -> StoreError:
    if request.branch:
        return BranchExistsError(
            f"repository {request.repository!r} already has a branch {request.branch!r}",
            fix="choose another name",
        )
    return RepositoryExistsError(
        f"lakeFS already has a repository {request.repository!r}", fix="choose another name"
    )
