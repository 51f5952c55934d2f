"""Where Spark finds a workspace's files: the contract of the two places there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.model.changes import ChangeSet


class Place(Protocol):
    """One attempt's workspace. Paths are checked, relative to the prefix; "" is all of it."""

    @property
    def hadoop(self) -> Mapping[str, str]:
        """Settings by which Spark gets there."""
        ...

    def files(self, below: str = "") -> Iterator[str]:
        """The files below a path: of the input commit, or of what was staged."""
        ...

    def input(self, path: str) -> str:
        """A URI of the path at the input commit."""
        ...

    def output(self, path: str) -> str:
        """A URI of the path where it can be written, and read back."""
        ...

    def scan(self) -> ChangeSet:
        """What has become of the paths that were asked for as outputs; leftovers are removed.

        Raises UnsupportedFileError for what can't be stored, if that is known by now.
        """
        ...

    def look_at_staged(self, commit: str) -> None:
        """From now on :meth:`files` and :meth:`reading` are of that staging commit.

        Raises WorkspaceError if it has what may not be published.
        """
        ...

    def reading(self, path: str) -> str:
        """A URI of the path as a check is to see it: the input commit's, or as staged."""
        ...
