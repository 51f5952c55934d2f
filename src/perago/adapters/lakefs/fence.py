"""The server-side fence: a pre-merge action that refuses every head but the expected one.

lakeFS runs it inside its own branch update, so between its look and the merge nothing can move.
It reads the action from the merge's *source*: it protects a merge only if it is there, unchanged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perago.adapters.lakefs.responses import FENCE_REFUSAL
from perago.model.commit import ACTIONS_PREFIX, EXPECTED_HEAD_KEY

if TYPE_CHECKING:
    from collections.abc import Callable

    ReadObject = Callable[[str, str, str], bytes | None]
    """The bytes of an object, by repository, ref and key; None if it isn't there."""

    Probe = Callable[[str, str, str | None], bool]
    """Whether the server refuses a wrong merge of a repository's ref, tried on that branch."""

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

_REMEMBERED = 1000
COMMIT_ID = re.compile(r"[0-9a-f]{64}")


class Fences:
    """What is known of the fences of a server's repositories, so that it isn't asked each time."""

    def __init__(self, read: ReadObject, probe: Probe) -> None:
        self._read = read
        self._probe = probe
        self._present: dict[tuple[str, str], bool] = {}
        self._enforced: set[str] = set()

    def shortcoming(self, repository: str, ref: str, trial: str | None = None) -> str | None:
        """Why a merge of ``ref`` isn't fenced by the server; None if it is."""
        if not self._is_present(repository, ref):
            return f"repository {repository!r} has no fence, or not this version's"
        if not self._is_enforced(repository, ref, trial):
            return f"the fence is in repository {repository!r}, but the server doesn't run actions"
        return None

    def ask_again(self, repository: str) -> None:
        """Forget that the server enforces it: it may be another one by now."""
        self._enforced.discard(repository)

    def _is_present(self, repository: str, ref: str) -> bool:
        if (repository, ref) not in self._present:
            found = self._read(repository, ref, FENCE_KEY) == FENCE_ACTION
            if not COMMIT_ID.fullmatch(ref):  # only what can't change is worth remembering
                return found
            if len(self._present) >= _REMEMBERED:
                self._present.clear()
            self._present[repository, ref] = found
        return self._present[repository, ref]

    def _is_enforced(self, repository: str, ref: str, trial: str | None) -> bool:
        """A yes is remembered: a server doesn't switch its actions off in passing."""
        if repository not in self._enforced and self._probe(repository, ref, trial):
            self._enforced.add(repository)
        return repository in self._enforced
