"""How a task's body gets at its data.

An engine opens a workspace at a commit, gives the body something to work with, and afterwards says
what changed. It never commits or publishes; the flow does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from perago.model.attempt import Execution
    from perago.model.progress import Computation, Transfer
    from perago.model.tables import TableReport, TableRules, TableSource
    from perago.model.workspace import ChangeSet, WorkspaceRef
    from perago.ports.store import OnTransfer, Store

    OpenStagingBranch = Callable[[], str]
    """Returns the name of the execution's staging branch, and creates it at the first call.

    For bodies that write there themselves. The branch starts at the input commit; an attempt fence
    runs before it is created. Raises FenceError or StoreError.
    """

    OnComputation = Callable[[Computation], None]
    """Called with the progress of an engine's computation, from one thread at a time."""


class Engine(Protocol):
    """Opens workspaces; one object per process serves all of its attempts."""

    def load(self) -> None:
        """Import what it needs. Called in the main thread: not every package can be imported twice.

        Raises RuntimeConfigError if it isn't installed.
        """
        ...

    def warm_up(self) -> None:
        """Start what opening a workspace would otherwise wait for. Called from any thread.

        Raises RuntimeConfigError, saying what is missing or can't be reached.
        """
        ...

    def stop(self) -> None:
        """Stop what runs elsewhere for this process. Called from any thread. Never raises."""
        ...

    def open(
        self,
        store: Store,
        workspace: WorkspaceRef,
        prefix: str,
        directory: Path,
        progress: OnTransfer | None = None,
        *,
        staging: OpenStagingBranch | None = None,
        computing: OnComputation | None = None,
        execution: Execution | None = None,
    ) -> OpenWorkspace:
        """Make the objects below ``prefix`` at the input commit available.

        ``directory`` is empty, private to the execution and named after it. Without ``staging``,
        nothing will be published. ``execution`` identifies the work in lineage events.

        Raises UnsafeKeyError before anything is written if any key can't be a file there.
        """
        ...


class OpenWorkspace(Protocol):
    """One attempt's workspace, from fetch to publication."""

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
        """The part of it that came from the store; the rest was on this machine already."""
        ...

    @property
    def files(self) -> Sequence[str]:
        """Paths below the prefix: of the input commit, of the last scan, or of the staging commit.

        The last of the three that happened: open, :meth:`scan`, :meth:`look_at_staged`.
        """
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the last :meth:`scan` left out, for a person to read."""
        ...

    @property
    def checks_staged_data(self) -> bool:
        """Whether post guardrails wait for the staging commit, and look at that.

        If not, they look at what :meth:`scan` saw, before anything is staged.
        """
        ...

    def scan(self) -> ChangeSet:
        """Compare what the body left with the input commit.

        Ends whatever the body started and removes its leftovers. Costs no more than a stat per
        file, and reads only files whose stat leaves a doubt. Raises UnsupportedFileError or
        UnsafeKeyError for what can't be stored, unless :meth:`look_at_staged` does.
        """
        ...

    def look_at_staged(self, commit: str) -> None:
        """From now on, :attr:`files` and :meth:`check_tables` read this staging commit.

        Only called where :attr:`checks_staged_data`. Raises WorkspaceError if the commit has
        something that may not be published, or that the scan didn't see.
        """
        ...

    def check_tables(
        self, rules: Sequence[TableRules], sources: Mapping[str, TableSource]
    ) -> Sequence[TableReport]:
        """Check these rules in the data: of the input commit, or as staged.

        ``sources`` says how to read the tables that the rules refer to, by path. Only called for
        tasks whose guardrails look into tables, which an engine may not support.
        """
        ...

    def explain(self, error: BaseException) -> str | None:
        """The one line that matters of an error of the engine's own; None if it isn't one."""
        ...

    def close(self) -> None:
        """End whatever the body started and still runs. Never raises."""
        ...
