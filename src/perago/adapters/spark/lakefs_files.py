"""A workspace in lakeFS: Spark reads commits and writes the staging branch through ``s3a``.

The committer for ``s3a`` refuses to overwrite single partitions, so PySpark's writers are adapted
to use another one for that: :func:`adapt_writers`.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perago.adapters.spark.configuration import COMMITTER, RENAMING_COMMITTER, s3a_uri
from perago.adapters.spark.files import (
    assert_storable,
    below_file_error,
    is_below,
    is_leftover,
    outside_outputs_error,
    parents,
    read_only_error,
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

_PROTOCOL_KEY = "spark.sql.sources.commitProtocolClass"
_OVERWRITE_KEY = "spark.sql.sources.partitionOverwriteMode"
_OVERWRITE_OPTION = "partitionoverwritemode"
_OVERWRITE_ATTRIBUTE = "_perago_partition_overwrite_mode"
_SAVE_MODE_ATTRIBUTE = "_perago_save_mode"
_WRITE_METHODS = ("csv", "insertInto", "json", "orc", "parquet", "save", "saveAsTable", "text")
_settings_lock = threading.RLock()
_adapted: set[type] = set()


@dataclass(slots=True)
class LakeFSLocation:
    """Implements :class:`perago.adapters.spark.workspace.Location`."""

    store: Store
    workspace: WorkspaceRef
    prefix: str
    login: LakeFSLogin
    staging: OpenStagingBranch | None
    keep_success: bool
    _branch: str | None = field(default=None, init=False)
    _outputs: set[str] = field(default_factory=set, init=False)
    _not_files: set[str] = field(default_factory=set, init=False)
    _changed: set[str] = field(default_factory=set, init=False)
    _leftovers: set[str] = field(default_factory=set, init=False)
    _staged: str = field(default="", init=False)

    @property
    def hadoop(self) -> Mapping[str, str]:
        return self.login.bucket_settings(self.workspace.repository)

    def files(self, below: str = "") -> Iterator[str]:
        start = key_prefix(self.prefix)
        ref = self._staged or self.workspace.ref
        for entry in self.store.list_objects(self.workspace.repository, ref, prefix=start + below):
            path = entry.key[len(start) :]
            is_own = start or not path.startswith(ACTIONS_PREFIX)
            if is_own and not path.endswith("/") and path and is_below(path, below):
                yield path

    def input(self, path: str) -> str:
        return self._uri(self.workspace.ref, path)

    def output(self, path: str) -> str:
        if self.staging is None:
            raise read_only_error(path)
        for folder in parents(path):
            if self._is_file(folder):
                raise below_file_error(path, folder)
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
                self._path_in_outputs(key)  # refuses hooks before the server sees them in a commit
                self._changed.add(key)
        self.store.delete_objects(self.workspace.repository, self._branch, sorted(self._leftovers))
        return ChangeSet(staged=tuple(sorted(self._changed)))

    def look_at_staged(self, commit: str) -> None:
        """Check the commit itself: a job that ended late may have written after the scan."""
        differences = self.store.changed_keys(self.workspace.repository, self.workspace.ref, commit)
        for key, kind in differences:
            self._assert_publishable(key, kind)
        self._staged = commit

    def input_for_checks(self, path: str) -> str:
        return self._uri(self._staged or self.workspace.ref, path)

    def _is_leftover(self, key: str) -> bool:
        start = key_prefix(self.prefix)
        if key.endswith("/"):  # marks a directory, perhaps one above the prefix
            return True
        path = key[len(start) :]
        return key.startswith(start) and is_leftover(path, keep_success=self.keep_success)

    def _assert_publishable(self, key: str, kind: DifferenceKind) -> None:
        is_removed = kind is DifferenceKind.REMOVED
        if key in self._leftovers and is_removed:
            return
        path = self._path_in_outputs(key)
        if key not in self._changed:
            raise WorkspaceChangedError(
                f"{path!r} was written after the body had returned",
                fix="wait in the body for every thread and every query that it starts",
            )
        if not is_removed:
            assert_storable(path)

    def _path_in_outputs(self, key: str) -> str:
        """Return the key's path. Raises UnsupportedFileError if that lies below no output."""
        start = key_prefix(self.prefix)
        if not key.startswith(start) or (not start and key.startswith(ACTIONS_PREFIX)):
            raise UnsupportedFileError(
                f"{key!r} was written outside of the workspace's prefix {self.prefix!r}",
                fix="write to ws.output(…) only",
            )
        path = key[len(start) :]
        if not any(is_below(path, output) for output in self._outputs):
            raise outside_outputs_error(path)
        return path

    def _is_file(self, path: str) -> bool:
        """Whether the input commit has an object of exactly that name: it would be listed first."""
        if path not in self._not_files:
            key = key_prefix(self.prefix) + path
            found = self.store.list_objects(
                self.workspace.repository, self.workspace.ref, prefix=key
            )
            if (first := next(iter(found), None)) is not None and first.key == key:
                return True
            self._not_files.add(path)
        return False

    def _uri(self, ref: str, path: str) -> str:
        return s3a_uri(self.workspace.repository, ref, key_prefix(self.prefix) + path)


def adapt_writers(writer: type) -> None:
    """Make writers of this class overwrite single partitions with RENAMING_COMMITTER.

    ``writer`` is PySpark's ``DataFrameWriter``, classic or Connect's. A second call does nothing.
    """
    if writer in _adapted:
        return
    _adapted.add(writer)
    writer.option = _remembering_option(writer.option)  # type: ignore[attr-defined]
    writer.options = _remembering_options(writer.options)  # type: ignore[attr-defined]
    writer.mode = _remembering_mode(writer.mode)  # type: ignore[attr-defined]
    for name in _WRITE_METHODS:
        setattr(writer, name, _choosing_committer(getattr(writer, name)))


def _remembering_option(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def option(self: Any, key: str, value: Any) -> Any:
        if key.lower() == _OVERWRITE_OPTION:
            setattr(self, _OVERWRITE_ATTRIBUTE, str(value))
        return original(self, key, value)

    return option


def _remembering_options(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def options(self: Any, **given: Any) -> Any:
        for key, value in given.items():
            if key.lower() == _OVERWRITE_OPTION:
                setattr(self, _OVERWRITE_ATTRIBUTE, str(value))
        return original(self, **given)

    return options


def _remembering_mode(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def mode(self: Any, saveMode: str | None) -> Any:  # noqa: N803 - PySpark's name
        if saveMode:
            setattr(self, _SAVE_MODE_ATTRIBUTE, saveMode)
        return original(self, saveMode)

    return mode


def _choosing_committer(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def write(self: Any, *arguments: Any, **named: Any) -> Any:
        settings = self._spark.conf
        given = (getattr(self, _SAVE_MODE_ATTRIBUTE, None), *arguments, *named.values())
        mode = getattr(self, _OVERWRITE_ATTRIBUTE, None) or settings.get(_OVERWRITE_KEY)
        if (
            not any(map(_may_mean_overwrite, given))
            or mode.lower() != "dynamic"
            or settings.get(_PROTOCOL_KEY, None) != COMMITTER[_PROTOCOL_KEY]
        ):
            return original(self, *arguments, **named)
        with _settings_lock:
            before = {key: settings.get(key, None) for key in RENAMING_COMMITTER}
            for key, value in RENAMING_COMMITTER.items():
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


def _may_mean_overwrite(argument: object) -> bool:
    """Whether it is the mode, or a flag as of ``insertInto``. A wrong guess only costs time."""
    return argument is True or (isinstance(argument, str) and argument.lower() == "overwrite")
