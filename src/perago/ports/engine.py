"""How a task's body meets its data.

An engine opens a workspace at a commit, hands the body something to work with, and afterwards
tells what changed. It never commits or publishes: that is the flow's business.
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
    """The name of the execution's staging branch, made at the input commit when first asked for.

    Asked from a body, so an attempt fence runs before it is made. Raises FenceError or StoreError.
    """

    OnComputation = Callable[[Computation], None]
    """Called with how far an engine's computing has come, from one thread at a time."""


class StagedChecks(Protocol):
    """Guardrails that look into the data, and at the very commit that would be published."""

    def look_at_staged(self, commit: str) -> None:
        """From now on files and tables are those of the staging commit, and nothing else.

        Raises WorkspaceError if that has what may not be published, or what the scan didn't see.
        """
        ...

    def check_tables(
        self, rules: Sequence[TableRules], sources: Mapping[str, TableSource]
    ) -> Sequence[TableReport]:
        """What these rules find in the data: of the input commit, or as staged.

        ``sources`` says how the tables are read that they refer to, by their paths.
        """
        ...


class OpenWorkspace(Protocol):
    """One attempt's workspace between fetch and publication."""

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
        """Paths below the prefix: at the input commit, by :meth:`scan`, or as staged."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the last :meth:`scan` saw and leaves out, worth telling a person."""
        ...

    @property
    def staged_checks(self) -> StagedChecks | None:
        """By what post guardrails look at the staging commit; None: they look at a directory."""
        ...

    def scan(self) -> ChangeSet:
        """Look at what the body left, and compare it with the input commit.

        Whatever the body set going has ended by then, and its leftovers are removed. Costs no more
        than a stat per file, and reads only files whose stat leaves a doubt. Raises
        UnsupportedFileError or UnsafeKeyError for what can't be stored, unless a look at what was
        staged does.
        """
        ...

    def explain(self, error: BaseException) -> str | None:
        """The one line that matters of an error of the engine's own; None if it isn't one."""
        ...

    def close(self) -> None:
        """End whatever the body set going and still goes on. Never raises."""
        ...


class Engine(Protocol):
    def load(self) -> None:
        """Import what it needs. In the main thread: a package may not stand two importing it.

        Raises RuntimeConfigError if it isn't installed.
        """
        ...

    def warm_up(self) -> None:
        """Get ready what opening a workspace would otherwise have to wait for, from any thread.

        Raises RuntimeConfigError, saying what is missing or can't be reached.
        """
        ...

    def stop(self) -> None:
        """Stop what goes on elsewhere on behalf of this process, from any thread. Never raises."""
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
        """Make the objects below ``prefix`` at the input commit available, here in ``directory``.

        That is the execution's own, and named after it. Without ``staging`` nothing will be
        published. ``execution`` is whose work it is, for what is told about it.

        Raises UnsafeKeyError before anything is written if any key can't be a file there.
        """
        ...
