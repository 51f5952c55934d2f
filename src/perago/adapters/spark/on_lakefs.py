"""A workspace in lakeFS: Spark reads commits and writes the staging branch by ``s3a``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from perago.adapters.spark.leftovers import assert_storable, is_leftover
from perago.adapters.spark.paths import is_below, read_only
from perago.adapters.spark.s3a import uri_of
from perago.errors import UnsupportedFileError
from perago.model.changes import ChangeSet
from perago.model.commit import ACTIONS_PREFIX
from perago.model.keys import key_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perago.adapters.spark.s3a import LakeFSLogin
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OpenStaging
    from perago.ports.store import Store


@dataclass(slots=True)
class OnLakeFS:
    """Implements :class:`perago.adapters.spark.place.Place`."""

    store: Store
    workspace: WorkspaceRef
    prefix: str
    login: LakeFSLogin
    staging: OpenStaging | None
    keep_success: bool
    _branch: str | None = field(default=None, init=False)
    _seen_at: str = field(default="", init=False)

    @property
    def hadoop(self) -> Mapping[str, str]:
        return self.login.settings_of(self.workspace.repository)

    def files(self, below: str = "") -> Iterator[str]:
        start = key_prefix(self.prefix)
        ref = self._seen_at or self.workspace.ref
        for entry in self.store.list_objects(self.workspace.repository, ref, prefix=start + below):
            path = entry.key[len(start) :]
            is_own = start or not path.startswith(ACTIONS_PREFIX)
            if is_own and not path.endswith("/") and path and is_below(path, below):
                yield path

    def input(self, path: str) -> str:
        return self._uri(self.workspace.ref, path)

    def output(self, path: str) -> str:
        if self.staging is None:
            raise read_only(path)
        self._branch = self.staging()
        return self._uri(self._branch, path)

    def scan(self) -> ChangeSet:
        if self._branch is None:
            return ChangeSet()
        repository, start = self.workspace.repository, key_prefix(self.prefix)
        leftovers, changed = [], []
        for key in self.store.uncommitted(repository, self._branch, limit=None):
            if key.endswith("/"):  # marks a directory, perhaps one above the prefix
                leftovers.append(key)
                continue
            if not key.startswith(start) or (not start and key.startswith(ACTIONS_PREFIX)):
                raise UnsupportedFileError(
                    f"{key!r} was written outside of the workspace's prefix {self.prefix!r}",
                    fix="write to ws.output(…) only",
                )
            path = key[len(start) :]
            if is_leftover(path, keep_success=self.keep_success):
                leftovers.append(key)
            else:
                assert_storable(path)
                changed.append(key)
        self.store.delete_objects(repository, self._branch, leftovers)
        return ChangeSet(staged=tuple(changed))

    def look_at_staged(self, commit: str) -> None:
        self._seen_at = commit

    def reading(self, path: str) -> str:
        return self._uri(self._seen_at or self.workspace.ref, path)

    def _uri(self, ref: str, path: str) -> str:
        return uri_of(self.workspace.repository, ref, key_prefix(self.prefix) + path)
