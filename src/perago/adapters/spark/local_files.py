"""A workspace in the embedded store: Spark reads and writes local files.

Inputs are the store's own files under a second name, and so are, at first, the outputs: nothing is
copied for either. None of them can be written: Spark writes new files and removes names. What it
wrote is handed to the store as it is, and checked as the store has it.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perago.adapters.spark.files import (
    above,
    assert_storable,
    below_a_file,
    beside_outputs,
    is_below,
    is_leftover,
    read_only,
    without_wildcards,
)
from perago.adapters.spark.jvm import can_drop_privileges
from perago.errors import UnsupportedFileError
from perago.model.workspace import (
    ChangeSet,
    Download,
    Signature,
    Upload,
    key_prefix,
    workspace_paths,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.model.commit import ObjectEntry
    from perago.model.workspace import WorkspaceRef
    from perago.ports.engine import OpenStagingBranch
    from perago.ports.store import Store

    Bring = Callable[[Sequence[Download]], object]


# --- The embedded store's own files, under second names in an attempt's directory ---
_OPEN, _SEALED = 0o755, 0o555


class LinkingStore(Protocol):
    """A store whose objects are files that can be given a second name."""

    def lend(self, wanted: Sequence[Download]) -> None: ...


class _Lent(NamedTuple):
    """How a file was found right after it was put there."""

    inode: int
    size: int
    mtime_ns: int
    is_the_stores: bool

    @classmethod
    def of(cls, stat: os.stat_result) -> _Lent:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_nlink > 1)

    def is_of(self, stat: os.stat_result) -> bool:
        return (self.inode, self.size, self.mtime_ns) == (
            stat.st_ino,
            stat.st_size,
            stat.st_mtime_ns,
        )


class LinkedFiles:
    """A directory with objects of a store in it, each put there once.

    In a ``sealed`` one nothing can be added, removed or replaced by who obeys permissions.
    """

    def __init__(self, place: Path, *, sealed: bool) -> None:
        self.place = place
        self._sealed = sealed
        self._files: dict[str, _Lent] = {}

    def uri(self, path: str) -> str:
        """As Hadoop reads one: it takes every sign for itself, also a ``%``."""
        return f"file://{self.place}/{path}"

    def add(self, wanted: Mapping[str, ObjectEntry], bring: Bring) -> None:
        """Have these there, by ``bring``, but for those that were put there before."""
        new = {path: entry for path, entry in wanted.items() if path not in self._files}
        folders = sorted({folder for path in new for folder in ("", *above(path))})
        self.place.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            (self.place / folder).mkdir(exist_ok=True)
            if self._sealed:
                (self.place / folder).chmod(_OPEN)
        bring([Download(entry, self.place / path) for path, entry in new.items()])
        for path in new:
            self._files[path] = _Lent.of((self.place / path).stat())
        for folder in folders if self._sealed else ():
            (self.place / folder).chmod(_SEALED)

    def is_untouched(self, path: str, stat: os.stat_result) -> bool:
        """Whether what is found there now is what was put there."""
        lent = self._files.get(path)
        return lent is not None and lent.is_of(stat)

    def written_through(self) -> Iterator[str]:
        """Files of the store that somebody who needn't obey has written in place."""
        for path, lent in self._files.items():
            if not lent.is_the_stores:
                continue
            try:
                stat = (self.place / path).lstat()
            except OSError:  # only a name is gone
                continue
            if stat.st_ino == lent.inode and not lent.is_of(stat):
                yield path


_REWRITTEN = ("_", ".")
"""Files beside the data, such as ``_SUCCESS``: the only ones that Spark writes in place."""


@dataclass(slots=True)
class LocalLocation:
    """Implements :class:`perago.adapters.spark.workspace.Place`."""

    store: Store
    lender: LinkingStore
    workspace: WorkspaceRef
    prefix: str
    directory: Path
    staging: OpenStagingBranch | None
    keep_success: bool
    _entries: dict[str, ObjectEntry] | None = field(default=None, init=False)
    _staged: dict[str, ObjectEntry] | None = field(default=None, init=False)
    _shown: LinkedFiles = field(init=False)
    _kept: LinkedFiles = field(init=False)
    _checked: LinkedFiles = field(init=False)
    _outputs: set[str] = field(default_factory=set, init=False)
    _written: set[str] | None = field(default=None, init=False)
    _one_at_a_time: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        self._shown = LinkedFiles(self.directory / "input", sealed=True)
        self._kept = LinkedFiles(self.directory / "output", sealed=False)
        self._checked = LinkedFiles(self.directory / "staged", sealed=True)

    @property
    def hadoop(self) -> Mapping[str, str]:
        return {}

    def files(self, below: str = "") -> Iterator[str]:
        found = set(self._baseline() if self._staged is None else self._staged)
        if self._staged is None and self._written is not None:
            found = {path for path in found if not self._is_output(path)} | self._written
        return iter(sorted(path for path in found if is_below(path, below)))

    def assert_safe(self) -> None:
        """Raises UnsafeKeyError if any key of the input commit can't be a file."""
        self._baseline()

    def input(self, path: str) -> str:
        return self._show(self._baseline(), self._shown, path)

    def output(self, path: str) -> str:
        if self.staging is None:
            raise read_only(path)
        for folder in above(path):
            if folder in self._baseline():
                raise below_a_file(path, folder)
        self.staging()
        with self._one_at_a_time:
            if not self._is_output(path):
                self._keep(path)
                kept = {root for root in self._outputs if not is_below(root, path)}
                self._outputs = kept | {path}
            (self._kept.place / path).parent.mkdir(parents=True, exist_ok=True)
        return self._kept.uri(path)

    def scan(self) -> ChangeSet:
        start, baseline = key_prefix(self.prefix), self._baseline()
        self._assert_store_unharmed()
        written, uploads = set(), []
        for path, stat in _walk(self._kept.place):
            if self._kept.is_untouched(path, stat):
                written.add(path)
                continue
            file = self._kept.place / path
            if is_leftover(path, keep_success=self.keep_success):
                file.unlink()
                continue
            if not self._is_output(path):
                raise beside_outputs(path)
            assert_storable(path)
            written.add(path)
            uploads.append(Upload(start + path, file, Signature.of(stat), spare=True))
        self._written = written
        changed = [upload for upload in uploads if not self._is_the_same(upload, baseline, start)]
        gone = [path for path in baseline if self._is_output(path) and path not in written]
        return ChangeSet(tuple(changed), tuple(start + path for path in gone))

    def look_at_staged(self, commit: str) -> None:
        self._staged = self._list(commit)

    def reading(self, path: str) -> str:
        if self._staged is None:
            return self.input(path)
        return self._show(self._staged, self._checked, path)

    def _show(self, entries: Mapping[str, ObjectEntry], lent: LinkedFiles, path: str) -> str:
        """A URI at which everything below the path can be read, and nothing be written."""
        root = without_wildcards(path)
        with self._one_at_a_time:  # a body may have threads
            lent.add({p: e for p, e in entries.items() if is_below(p, root)}, self._lend)
        return lent.uri(path)

    def _keep(self, below: str) -> None:
        """Have what the input commit has below a path there, but for what the body wrote."""
        wanted = {
            path: entry
            for path, entry in self._baseline().items()
            if is_below(path, below) and not self._is_output(path)
        }
        rewritten = {path: entry for path, entry in wanted.items() if _may_be_rewritten(path)}
        self._kept.add(rewritten, self._copy)
        self._kept.add(wanted, self._lend)

    def _lend(self, wanted: Sequence[Download]) -> None:
        if can_drop_privileges():
            self.lender.lend(wanted)
        else:
            self._copy(wanted)

    def _copy(self, wanted: Sequence[Download]) -> None:
        self.store.download(self.workspace.repository, self.workspace.ref, wanted)

    def _baseline(self) -> dict[str, ObjectEntry]:
        if self._entries is None:
            self._entries = self._list(self.workspace.ref)
        return self._entries

    def _list(self, ref: str) -> dict[str, ObjectEntry]:
        entries = {
            entry.key: entry
            for entry in self.store.list_objects(
                self.workspace.repository, ref, prefix=key_prefix(self.prefix)
            )
        }
        return {path: entries[key] for key, path in workspace_paths(entries, self.prefix).items()}

    def _is_output(self, path: str) -> bool:
        return any(is_below(path, root) for root in self._outputs)

    def _is_the_same(self, upload: Upload, baseline: Mapping[str, ObjectEntry], start: str) -> bool:
        """Whether a file of an old name has its old content; a name of Spark's own is new."""
        entry = baseline.get(upload.key[len(start) :])
        return (
            entry is not None
            and entry.size == upload.signature.size
            and self.store.holds(entry, upload.path)
        )

    def _assert_store_unharmed(self) -> None:
        """Root may write what is read-only, and a body's own code is no part of Spark."""
        for lent in (self._shown, self._kept):
            for path in lent.written_through():
                raise UnsupportedFileError(
                    f"the body has written into {path!r} in place, which is the store's own file: "
                    "every commit that has it is damaged",
                    fix="have the body write by Spark, or remove a file before writing it anew; "
                    "`perago verify` tells what is damaged, and `perago import` of the same file "
                    "heals it",
                )


def _may_be_rewritten(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_REWRITTEN) or "/_delta_log/" in f"/{path}"


def _walk(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    pending = [""] if place.is_dir() else []
    while pending:
        folder = pending.pop()
        with os.scandir(place / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
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
