"""The server-side fence: a pre-merge action that refuses every head but the expected one.

lakeFS runs it inside its own branch update, so between its look and the merge nothing can move.
It reads the action from the merge's *source*: it protects a merge only if it is there, unchanged.
"""

from __future__ import annotations

from perago.adapters.lakefs.answers import FENCE_REFUSAL
from perago.model.commit import ACTIONS_PREFIX, EXPECTED_HEAD_KEY

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
