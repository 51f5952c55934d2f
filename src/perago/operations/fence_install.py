"""The server-side fence of a lakeFS repository: put there as a commit of its own, and proven."""

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
"""Metadata of a commit that installs the fence, and of no other."""


class FenceState(StrEnum):
    ENFORCED = "enforced"
    SWITCHED_OFF = "switched off"
    DIFFERENT = "different"
    MISSING = "missing"


class ProvableStore(Store, Protocol):
    """A store whose merges depend on a file in the repository, and that can try it out."""

    def probe_fence(self, repository: str, ref: str) -> bool:
        """Whether a merge that expects another head than there is gets refused."""
        ...


@dataclass(frozen=True, slots=True)
class Installation:
    """How the branch stands: at ``head``, with the fence. ``replaced``: another version was there.

    ``commit`` is the one that put it there just now, None if it was there already.
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
    """Put the action on the branch, in a commit that changes nothing else, unless it is there.

    Raises as :meth:`ManualCommit.commit` does, and BranchNotFoundError: nothing is made for it.
    """
    key, action = fence_file()
    head = store.head(repository, branch)
    found = _content_at(store, repository, head.id, key)
    if found == action:
        return Installation(head, None, replaced=False)
    message = "install the perago fence" if found is None else "replace the perago fence"
    made = ManualCommit(
        store, repository, branch, head, "fence installation", FENCE_COMMIT_KEY, message
    )
    with tempfile.TemporaryDirectory(prefix="perago-fence-") as directory:
        path = Path(directory) / "action.yaml"
        path.write_bytes(action)
        upload = Upload(key, path, Signature.of(path.stat()))
        commit = made.commit(ChangeSet((upload,)), before_publishing=before_publishing)
    return Installation(commit or head, commit, replaced=found is not None)


def probe_fence(store: ProvableStore, repository: str, ref: str) -> FenceState:
    """Whether the server enforces the fence at ``ref``, found out by a merge it must refuse."""
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
