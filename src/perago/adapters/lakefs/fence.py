"""The server-side fence: a pre-merge action that refuses every head but the expected one.

lakeFS runs it inside its own branch update, so the head can't move between the check and the merge.
It reads the action from the merge's *source*: only an unchanged action there protects the merge.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perago.adapters.lakefs.responses import FENCE_REFUSAL
from perago.model.commit import ACTIONS_PREFIX, EXPECTED_HEAD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    ReadObject = Callable[[str, str, str], bytes | None]
    """The bytes of an object, by repository, ref and key; None if there is no such object."""

    Probe = Callable[[str, str, str | None], bool]
    """Whether the server refuses a wrong merge of a repository's ref; the branch to try it on."""

FENCE_KEY = f"{ACTIONS_PREFIX}perago_fence.yaml"

NO_COMMIT = "0" * 64
"""An id that no commit has: a merge that expects it must be refused."""

FENCE_ACTION = f"""\
# Keeps Perago's publications from landing on a head they were not made for.
# Written by `perago fence install`; counts only while it is byte for byte the same.
name: perago fence
description: refuse a merge unless its metadata names the branch's present head
on:
  pre-merge:
hooks:
  - id: expected_head
    type: lua
    properties:
      script: |
        local head = action.commit.parents[1]
        local expected = action.commit.metadata["{EXPECTED_HEAD_KEY}"]
        if expected == nil or expected == "" then
          error("{FENCE_REFUSAL} the merge carries no {EXPECTED_HEAD_KEY}; the head is " .. head)
        end
        if expected ~= head then
          error("{FENCE_REFUSAL} the head is " .. head .. ", expected was " .. expected)
        end
""".encode()

_CACHED_REFS = 1000
COMMIT_ID = re.compile(r"[0-9a-f]{64}")


class Fences:
    """Which refs have the fence, and which repositories' servers enforce it; both are cached."""

    def __init__(self, read: ReadObject, probe: Probe) -> None:
        self._read = read
        self._probe = probe
        self._present: dict[tuple[str, str], bool] = {}
        self._enforced: set[str] = set()

    def shortcoming(self, repository: str, ref: str, trial: str | None = None) -> str | None:
        """Why a merge of ``ref`` isn't fenced by the server; None if it is."""
        if not self._is_present(repository, ref):
            return f"repository {repository!r} has no fence, or another version of it"
        if not self._is_enforced(repository, ref, trial):
            return f"the fence is in repository {repository!r}, but the server doesn't run actions"
        return None

    def recheck(self, repository: str) -> None:
        """Probe the server again before the next merge: it may have other settings by now."""
        self._enforced.discard(repository)

    def _is_present(self, repository: str, ref: str) -> bool:
        if (repository, ref) not in self._present:
            found = self._read(repository, ref, FENCE_KEY) == FENCE_ACTION
            if not COMMIT_ID.fullmatch(ref):  # a branch's content may change
                return found
            if len(self._present) >= _CACHED_REFS:
                self._present.clear()
            self._present[repository, ref] = found
        return self._present[repository, ref]

    def _is_enforced(self, repository: str, ref: str, trial: str | None) -> bool:
        """Only a yes is cached: a running server doesn't switch its actions off."""
        if repository not in self._enforced and self._probe(repository, ref, trial):
            self._enforced.add(repository)
        return repository in self._enforced
