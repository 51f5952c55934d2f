"""A workspace in the embedded store: Spark reads and writes local files.

Inputs are the store's own files under a second name, and so are, at first, the outputs: nothing is
copied for either. None of them can be written: Spark writes new files and removes names. What it
wrote is handed to the store as it is.
"""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perago.adapters.spark.leftovers import assert_storable, is_leftover
from perago.adapters.spark.paths import is_below, read_only, without_wildcards
from perago.errors import UnsupportedFileError
from perago.model.changes import ChangeSet, Download, Signature, Upload
from perago.model.keys import key_prefix, workspace_paths

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.model.commit import ObjectEntry
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OpenStaging
    from perago.ports.store import Store

_REWRITTEN = ("_", ".")
"""Files beside the data, such as ``_SUCCESS``: the only ones that Spark writes in place."""


class Lender(Protocol):
    """A store whose objects are files that can be given a second name."""

    def lend(self, wanted: Sequence[Download]) -> None: ...


class _Lent(NamedTuple):
    """How a second name was found right after it was given."""

    inode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, stat: os.stat_result) -> _Lent:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns)


@dataclass(slots=True)
class OnFiles:
    """Implements :class:`perago.adapters.spark.place.Place`."""

    store: Store
    lender: Lender
    workspace: WorkspaceRef
    prefix: str
    directory: Path
    staging: OpenStaging | None
    keep_success: bool
    _entries: dict[str, ObjectEntry] | None = field(default=None, init=False)
    _at_hand: set[str] = field(default_factory=set, init=False)
    _outputs: set[str] = field(default_factory=set, init=False)
    _lent: dict[str, _Lent] = field(default_factory=dict, init=False)
    _written: dict[str, os.stat_result] = field(default_factory=dict, init=False)
    _is_scanned: bool = field(default=False, init=False)
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock, init=False)

    @property
    def hadoop(self) -> Mapping[str, str]:
        return {}

    def files(self, below: str = "") -> Iterator[str]:
        found = set(self._baseline())
        if self._is_scanned:
            found = {path for path in found if not self._is_output(path)} | set(self._written)
        return iter(sorted(path for path in found if is_below(path, below)))

    def assert_safe(self) -> None:
        """Raises UnsafeKeyError if any key of the input commit can't be a file."""
        self._baseline()

    def input(self, path: str) -> str:
        root = without_wildcards(path)
        place = self.directory / "input"
        with self._one_at_a_time:  # a body may have threads
            wanted = {
                path: entry
                for path, entry in self._baseline().items()
                if is_below(path, root) and path not in self._at_hand
            }
            self._lend(wanted, place)
            self._at_hand.update(wanted)
        return _uri(place, path)

    def output(self, path: str) -> str:
        if self.staging is None:
            raise read_only(path)
        self.staging()
        place = self.directory / "output"
        with self._one_at_a_time:
            if not self._is_output(path):
                self._lend_outputs(path)
                kept = {root for root in self._outputs if not is_below(root, path)}
                self._outputs = kept | {path}
            (place / path).parent.mkdir(parents=True, exist_ok=True)
        return _uri(place, path)

    def scan(self) -> ChangeSet:
        start, baseline = key_prefix(self.prefix), self._baseline()
        place = self.directory / "output"
        self._written, self._is_scanned = {}, True
        uploads = []
        for root in sorted(self._outputs):
            for path, stat in _walk(place, root):
                if self._lent.get(path) == _Lent.of(stat):
                    self._written[path] = stat
                    continue
                if is_leftover(path, keep_success=self.keep_success):
                    (place / path).unlink()
                    continue
                assert_storable(path)
                self._written[path] = stat
                uploads.append(Upload(start + path, place / path, Signature.of(stat), spare=True))
        changed = [upload for upload in uploads if not self._is_the_same(upload, baseline, start)]
        gone = [p for p in baseline if self._is_output(p) and p not in self._written]
        return ChangeSet(tuple(changed), tuple(start + path for path in gone))

    def look_at_staged(self, commit: str) -> None:
        del commit  # the store has taken these very files

    def reading(self, path: str) -> str:
        if not self._is_scanned:
            return self.input(path)
        self._lend_outputs(path)
        return _uri(self.directory / "output", path)

    def _baseline(self) -> dict[str, ObjectEntry]:
        if self._entries is None:
            entries = {
                entry.key: entry
                for entry in self.store.list_objects(
                    self.workspace.repository, self.workspace.ref, prefix=key_prefix(self.prefix)
                )
            }
            paths = workspace_paths(entries, self.prefix)
            self._entries = {path: entries[key] for key, path in paths.items()}
        return self._entries

    def _is_output(self, path: str) -> bool:
        return any(is_below(path, root) for root in self._outputs)

    def _lend_outputs(self, below: str) -> None:
        """Have everything of the input commit below a path there, but for what the body wrote."""
        place = self.directory / "output"
        wanted = {
            path: entry
            for path, entry in self._baseline().items()
            if is_below(path, below) and path not in self._lent and not self._is_output(path)
        }
        self._lend(wanted, place)
        for path in wanted:
            self._lent[path] = _Lent.of((place / path).stat())

    def _lend(self, wanted: Mapping[str, ObjectEntry], place: Path) -> None:
        for folder in {os.path.dirname(path) for path in wanted}:  # noqa: PTH120 - plain strings
            (place / folder).mkdir(parents=True, exist_ok=True)
        self.lender.lend([Download(entry, place / path) for path, entry in wanted.items()])
        for path in wanted:
            if path.rpartition("/")[2].startswith(_REWRITTEN) or "/_delta_log/" in f"/{path}":
                _make_own(place / path)

    def _is_the_same(self, upload: Upload, baseline: Mapping[str, ObjectEntry], start: str) -> bool:
        """Whether a file of an old name has its old content; a name of Spark's own is new."""
        entry = baseline.get(upload.key[len(start) :])
        return (
            entry is not None
            and entry.size == upload.signature.size
            and self.store.holds(entry, upload.path)
        )


def _uri(place: Path, path: str) -> str:
    """As Hadoop reads one: it takes every sign for itself, also a ``%``."""
    return f"file://{place}/{path}"


def _make_own(path: Path) -> None:
    """A copy in the place of a file that isn't ours to write."""
    copy = path.with_name(f"{path.name}.copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def _walk(place: Path, root: str) -> Iterator[tuple[str, os.stat_result]]:
    top = place / root
    if top.is_symlink():
        raise _no_file(root)
    if top.is_file():
        yield root, top.lstat()
    pending = [root] if top.is_dir() else []
    while pending:
        folder = pending.pop()
        with os.scandir(place / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False)
                else:
                    raise _no_file(path)


def _no_file(path: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{path!r} is neither a file nor a directory", fix="have the task write tables only"
    )
