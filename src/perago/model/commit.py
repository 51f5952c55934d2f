"""What a store holds: commits, branches, objects, and how two trees differ."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIONS_PREFIX = "_lakefs_actions/"
"""Where a repository keeps its server-side hooks; never part of a workspace."""

EXPECTED_HEAD_KEY = "perago.expected_head"
"""Metadata of a merge: the head it expects. The fence on the server compares it."""

TABLES_KEY = "perago.tables"
"""Metadata of a published commit: the results of its table checks, as JSON."""

IMPORT_KEY = "perago.import"
"""Metadata of a commit that a person made by importing files, and of no other commit."""


@dataclass(frozen=True, slots=True)
class Commit:
    """An immutable state of a repository. Equal ``tree`` means equal content."""

    id: str
    parents: tuple[str, ...]
    tree: str
    message: str
    metadata: Mapping[str, str]
    created_at: float

    def is_only_child_of(self, ref: str) -> bool:
        return self.parents == (ref,)


@dataclass(frozen=True, slots=True)
class Branch:
    name: str
    head: str


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One object of a tree. ``checksum`` identifies its bytes within one store only.

    ``location`` is where the store keeps the bytes, if it says so. Location, size and checksum
    together identify bytes that never change; a checksum alone may not be a hash of the content.
    """

    key: str
    size: int
    checksum: str
    location: str = ""


class DifferenceKind(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True)
class Difference:
    """How one object differs between two trees; an absent side is None."""

    key: str
    before: ObjectEntry | None
    after: ObjectEntry | None

    @property
    def kind(self) -> DifferenceKind:
        if self.before is None:
            return DifferenceKind.ADDED
        return DifferenceKind.REMOVED if self.after is None else DifferenceKind.CHANGED


@dataclass(frozen=True, slots=True)
class Atomicity:
    """Whether a store can compare and swap a branch's head, for a given repository state.

    ``shortcoming`` says why it can't for a merge, if a person can do something about it.
    """

    cas_merge: bool
    cas_relocate: bool
    shortcoming: str | None = None
