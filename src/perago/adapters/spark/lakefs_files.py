"""A workspace in lakeFS: Spark reads commits and writes the staging branch by ``s3a``."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perago.adapters.spark.configuration import COMMITTER, RENAMING, s3a_uri
from perago.adapters.spark.files import (
    above,
    assert_storable,
    below_a_file,
    beside_outputs,
    is_below,
    is_leftover,
    read_only,
)
from perago.errors import UnsupportedFileError, WorkspaceChangedError
from perago.model.commit import ACTIONS_PREFIX, DifferenceKind
from perago.model.workspace import ChangeSet, key_prefix

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from perago.adapters.spark.configuration import LakeFSLogin
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OpenStagingBranch
    from perago.ports.store import Store


# --- Overwriting single partitions on lakeFS ---
PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"
_MODE_KEY = "spark.sql.sources.partitionOverwriteMode"
_MODE_OPTION = "partitionoverwritemode"
_NOTED = "_perago_partition_overwrite_mode"
_SAVE_MODE = "_perago_save_mode"
_WRITES = (
    "csv",
    "insertInto",
    "json",
    "orc",
    "parquet",
    "save",
    "saveAsTable",
    "text",
)
_one_at_a_time = threading.RLock()
_adapted: set[type] = set()


def adapt_writers(writer: type) -> None:
    """Have all writers of this class, classic or Connect's, choose the protocol. Once is enough."""
    if writer in _adapted:
        return
    _adapted.add(writer)
    writer.option = _noting_option(writer.option)  # type: ignore[attr-defined]
    writer.options = _noting_options(writer.options)  # type: ignore[attr-defined]
    writer.mode = _noting_mode(writer.mode)  # type: ignore[attr-defined]
    for name in _WRITES:
        setattr(writer, name, _choosing(getattr(writer, name)))


def _noting_option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        if key.lower() == _MODE_OPTION:
            setattr(self, _NOTED, str(value))
        return original(self, key, value)

    return option


def _noting_options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **given: Any) -> Any:
        for key, value in given.items():
            if key.lower() == _MODE_OPTION:
                setattr(self, _NOTED, str(value))
        return original(self, **given)

    return options


def _noting_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def mode(self: Any, saveMode: str | None) -> Any:  # noqa: N803 - as PySpark calls it
        if saveMode:
            setattr(self, _SAVE_MODE, saveMode)
        return original(self, saveMode)

    return mode


def _choosing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(self: Any, *arguments: Any, **named: Any) -> Any:
        settings = self._spark.conf
        given = (getattr(self, _SAVE_MODE, None), *arguments, *named.values())
        mode = getattr(self, _NOTED, None) or settings.get(_MODE_KEY)
        if (
            not any(map(_may_mean_overwriting, given))
            or mode.lower() != "dynamic"
            or settings.get(PROTOCOL_KEY, None) != COMMITTER[PROTOCOL_KEY]
        ):
            return original(self, *arguments, **named)
        with _one_at_a_time:
            before = {key: settings.get(key, None) for key in RENAMING}
            for key, value in RENAMING.items():
                settings.set(key, value)
            try:
                return original(self, *arguments, **named)
            finally:
                for key, value in before.items():
                    if value is None:
                        settings.unset(key)
                    else:
                        settings.set(key, value)

    return write


def _may_mean_overwriting(argument: object) -> bool:
    """Whether it is the mode, or a flag such as that of ``insertInto``. The wrong flag is slow."""
    return argument is True or (isinstance(argument, str) and argument.lower() == "overwrite")


@dataclass(slots=True)
class LakeFSLocation:
    """Implements :class:`perago.adapters.spark.workspace.Place`."""

    store: Store
    workspace: WorkspaceRef
    prefix: str
    login: LakeFSLogin
    staging: OpenStagingBranch | None
    keep_success: bool
    _branch: str | None = field(default=None, init=False)
    _outputs: set[str] = field(default_factory=set, init=False)
    _folders: set[str] = field(default_factory=set, init=False)
    _changed: set[str] = field(default_factory=set, init=False)
    _leftovers: set[str] = field(default_factory=set, init=False)
    _seen_at: str = field(default="", init=False)

    @property
    def hadoop(self) -> Mapping[str, str]:
        return self.login.bucket_settings(self.workspace.repository)

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
        for folder in above(path):
            if self._is_file(folder):
                raise below_a_file(path, folder)
        self._branch = self.staging()
        self._outputs.add(path)
        return self._uri(self._branch, path)

    def scan(self) -> ChangeSet:
        if self._branch is None:
            return ChangeSet()
        for key in self.store.uncommitted(self.workspace.repository, self._branch, limit=None):
            if self._is_leftover(key):
                self._leftovers.add(key)
            else:
                self._assert_asked_for(key)  # before the server finds hooks in a commit
                self._changed.add(key)
        self.store.delete_objects(self.workspace.repository, self._branch, sorted(self._leftovers))
        return ChangeSet(staged=tuple(sorted(self._changed)))

    def look_at_staged(self, commit: str) -> None:
        """Judge the commit itself: a job that ended late may have written since the scan."""
        differences = self.store.changed_keys(self.workspace.repository, self.workspace.ref, commit)
        for key, kind in differences:
            self._assert_publishable(key, kind)
        self._seen_at = commit

    def _is_leftover(self, key: str) -> bool:
        start = key_prefix(self.prefix)
        if key.endswith("/"):  # marks a directory, perhaps one above the prefix
            return True
        path = key[len(start) :]
        return key.startswith(start) and is_leftover(path, keep_success=self.keep_success)

    def _assert_publishable(self, key: str, kind: DifferenceKind) -> None:
        is_gone = kind is DifferenceKind.REMOVED
        if key in self._leftovers and is_gone:
            return
        path = self._assert_asked_for(key)
        if key not in self._changed:
            raise WorkspaceChangedError(
                f"{path!r} was written after the body had returned",
                fix="wait in the body for every thread and every query that it starts",
            )
        if not is_gone:
            assert_storable(path)

    def _assert_asked_for(self, key: str) -> str:
        """The key's path, which is below an output."""
        start = key_prefix(self.prefix)
        if not key.startswith(start) or (not start and key.startswith(ACTIONS_PREFIX)):
            raise UnsupportedFileError(
                f"{key!r} was written outside of the workspace's prefix {self.prefix!r}",
                fix="write to ws.output(…) only",
            )
        path = key[len(start) :]
        if not any(is_below(path, output) for output in self._outputs):
            raise beside_outputs(path)
        return path

    def _is_file(self, path: str) -> bool:
        """Whether the input commit has an object of exactly that name: it would come first."""
        if path not in self._folders:
            key = key_prefix(self.prefix) + path
            found = self.store.list_objects(
                self.workspace.repository, self.workspace.ref, prefix=key
            )
            if (first := next(iter(found), None)) is not None and first.key == key:
                return True
            self._folders.add(path)
        return False

    def reading(self, path: str) -> str:
        return self._uri(self._seen_at or self.workspace.ref, path)

    def _uri(self, ref: str, path: str) -> str:
        return s3a_uri(self.workspace.repository, ref, key_prefix(self.prefix) + path)
