"""How a task's body meets its data.

An engine opens a workspace at a commit, hands the body something to work with, and afterwards
tells what changed. It never stages or publishes: that is the flow's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perago.model.changes import ChangeSet
    from perago.model.outcome import Transfer
    from perago.model.workspace import WorkspaceRef
    from perago.ports.store import Progress, Store


class OpenWorkspace(Protocol):
    """One attempt's workspace between fetch and staging."""

    @property
    def argument(self) -> object:
        """What the task body gets as its first argument."""
        ...

    @property
    def fetched(self) -> Transfer:
        """All that was made available."""
        ...

    @property
    def moved(self) -> Transfer:
        """What of it had to be brought from the store; the rest was on this machine already."""
        ...

    @property
    def files(self) -> Sequence[str]:
        """Paths below the prefix, as last looked at: at the input commit, or by :meth:`scan`."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the last :meth:`scan` saw and leaves out, worth telling a person."""
        ...

    def scan(self) -> ChangeSet:
        """Look at what the body left, and compare it with the input commit.

        Costs a stat per file, and reads only files whose stat leaves a doubt. Raises
        UnsupportedFileError or UnsafeKeyError for what can't be stored.
        """
        ...


class Engine(Protocol):
    def open(
        self,
        store: Store,
        workspace: WorkspaceRef,
        prefix: str,
        directory: Path,
        progress: Progress | None = None,
    ) -> OpenWorkspace:
        """Make the objects below ``prefix`` at the input commit available in ``directory``.

        Raises UnsafeKeyError before anything is written if any key can't be a file there.
        """
        ...
