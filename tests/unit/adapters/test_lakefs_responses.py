"""Which errors lakeFS's refusals become. The messages are those of a real server."""

import pytest

from perago.adapters.lakefs.responses import Request, refusal
from perago.errors import (
    BranchNotFoundError,
    CommitNotFoundError,
    HeadMovedError,
    RepositoryNotFoundError,
    StoreAccessError,
    StoreRefusedError,
)

MERGE = Request("merging 'c' into 'main'", "songs", "main", ref="c")
LOOK = Request("reading the head of 'main'", "songs", "main")


@pytest.mark.parametrize(
    ("status", "message", "request_", "error"),
    [
        (401, "error authenticating request", LOOK, StoreAccessError),
        (401, "insufficient permissions: not allowed to fs:ReadBranch", LOOK, StoreAccessError),
        (403, "protected branch", MERGE, StoreRefusedError),
        (404, "repository not found", MERGE, RepositoryNotFoundError),
        (404, "branch not found", MERGE, BranchNotFoundError),
        (404, "not found", LOOK, BranchNotFoundError),
        (404, "update branch main: get commit by ref c: not found", MERGE, CommitNotFoundError),
        (404, "hard-reset branch-1 to c: not found", MERGE, CommitNotFoundError),
        (412, "pre-merge hook aborted: perago fence: the head is b", MERGE, HeadMovedError),
        (400, "uncommitted changes (dirty branch)", MERGE, StoreRefusedError),
    ],
)
def test_each_refusal_is_told_as_what_it_is(status, message, request_, error):
    assert type(refusal(status, message, request_)) is error


@pytest.mark.parametrize("words", ["not allowed to", "denied permission to"])
def test_a_missing_permission_is_named_and_the_key_is_not_blamed(words):
    told = refusal(401, f"insufficient permissions: {words} fs:CreateCommit", MERGE)
    assert "fs:CreateCommit" in told.message
    assert told.fix.startswith("allow fs:CreateCommit")
    assert "KEY" not in told.fix


def test_an_unknown_key_is_not_told_as_a_missing_permission():
    told = refusal(401, "error authenticating request", MERGE)
    assert "LAKECTL_CREDENTIALS_ACCESS_KEY_ID" in told.fix
