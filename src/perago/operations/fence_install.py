"""The compare-and-swap hook of a lakeFS repository: a commit installs it, a merge tests it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from perago.model.workspace import ChangeSet, Download, Signature, Upload
from perago.operations.manual_commit import ManualCommit
from perago.ports.store import Store
from perago.wiring import fence_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from perago.model.commit import Commit


FENCE_COMMIT_KEY = "perago.fence"
"""The metadata key that only a commit that installs the fence carries."""


class FenceState(StrEnum):
    ENFORCED = "enforced"
    SWITCHED_OFF = "switched off"
    DIFFERENT = "different"
    MISSING = "missing"


class ProbedStore(Store, Protocol):
    """A store whose merges are fenced by a file in the repository, and that can test it."""

    def probe_fence(self, repository: str, ref: str) -> bool:
        """Whether the server refuses a merge that expects another head."""
        ...


@dataclass(frozen=True, slots=True)
class Installation:
    """The branch with the fence, at ``head``. ``replaced``: it had another version before.

    ``commit`` is the one that installed it; None if the fence was already installed.
    """

    head: Commit
    commit: Commit | None
    replaced: bool


def install_fence(
    store: Store,
    repository: str,
    branch: str,
    *,
    before_publishing: Callable[[], None] | None = None,
) -> Installation:
    """Commit the hook to the branch, and nothing else, unless it is installed already.

    ``before_publishing`` and errors are those of :meth:`ManualCommit.commit`. Raises
    BranchNotFoundError for a missing branch: it isn't created.
    """
    key, action = fence_file()
    head = store.head(repository, branch)
    found = _content_at(store, repository, head.id, key)
    if found == action:
        return Installation(head, None, replaced=False)
    message = "install the perago fence" if found is None else "replace the perago fence"
    manual = ManualCommit(
        store, repository, branch, head, "fence installation", FENCE_COMMIT_KEY, message
    )
    with tempfile.TemporaryDirectory(prefix="perago-fence-") as directory:
        path = Path(directory) / "action.yaml"
        path.write_bytes(action)
        upload = Upload(key, path, Signature.of(path.stat()))
        commit = manual.commit(ChangeSet((upload,)), before_publishing=before_publishing)
    return Installation(commit or head, commit, replaced=found is not None)


def probe_fence(store: ProbedStore, repository: str, ref: str) -> FenceState:
    """Whether the server enforces the fence at ``ref``, tested with a merge it must refuse."""
    key, action = fence_file()
    found = _content_at(store, repository, ref, key)
    if found is None:
        return FenceState.MISSING
    if found != action:
        return FenceState.DIFFERENT
    enforced = store.probe_fence(repository, ref)
    return FenceState.ENFORCED if enforced else FenceState.SWITCHED_OFF


def _content_at(store: Store, repository: str, ref: str, key: str) -> bytes | None:
    entry = next((e for e in store.list_objects(repository, ref, prefix=key) if e.key == key), None)
    if entry is None:
        return None
    with tempfile.TemporaryDirectory(prefix="perago-fence-") as directory:
        path = Path(directory) / "action.yaml"
        store.download(repository, ref, [Download(entry, path)])
        return path.read_bytes()
