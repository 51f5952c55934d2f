"""Named places between the steps of an attempt where a test can crash, delay or duplicate.

The names are a closed list: a fault injected at a name that doesn't exist would test nothing.
"""

from __future__ import annotations

from typing import Protocol

FAILPOINTS = (
    "input.validated",
    "directory.created",
    "workspace.fetched",
    "pre.checked",
    "body.done",
    "post.checked",
    "fence1.passed",
    "staging.branch_created",
    "staging.uploaded",
    "staging.committed",
    "fence2.passed",
    "publish.head_read",
    "publish.decided",
    "publish.cleared",
    "publish.sent",
    "publish.verified",
    "publish.done",
    "staging.deleted",
    "report.ready",
    "report.sent",
    "directory.removed",
)


class Failpoints(Protocol):
    def hit(self, name: str) -> None:
        """Reached ``name``, one of :data:`FAILPOINTS`. Does nothing, unless told otherwise."""
        ...


class NoFailpoints:
    def hit(self, name: str) -> None:
        """Go on."""
