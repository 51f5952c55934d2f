"""A workspace in the embedded store: Spark reads and writes local files.

Inputs are hard links to the store's own files, and so are the outputs at first: nothing is copied
for either. No link can be written: Spark writes new files and removes names. The store takes over
the files that Spark wrote, and checks read them there.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perago.adapters.spark.files import (
    assert_storable,
    below_file_error,
    is_below,
    is_leftover,
    outside_outputs_error,
    parents,
    read_only_error,
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

    PutFiles = Callable[[Sequence[Download]], object]

_WRITABLE, _SEALED = 0o755, 0o555
_REWRITTEN = ("_", ".")
"""How names of files beside the data begin, such as ``_SUCCESS``: Spark writes them in place."""


class LinkingStore(Protocol):
    """A store whose objects are files that can have hard links."""

    def link(self, wanted: Sequence[Download]) -> None: ...


@dataclass(slots=True)
class LocalLocation:
    """Implements :class:`perago.adapters.spark.workspace.Location`."""

    store: Store
    linking_store: LinkingStore
    workspace: WorkspaceRef
    prefix: str
    directory: Path
    staging: OpenStagingBranch | None
    keep_success: bool
    _baseline_entries: dict[str, ObjectEntry] | None = field(default=None, init=False)
    _staged_entries: dict[str, ObjectEntry] | None = field(default=None, init=False)
    _inputs: LinkedFiles = field(init=False)
    _outputs: LinkedFiles = field(init=False)
    _staged: LinkedFiles = field(init=False)
    _output_paths: set[str] = field(default_factory=set, init=False)
    _written: set[str] | None = field(default=None, init=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, init=False)

    def __post_init__(self) -> None:
        self._inputs = LinkedFiles(self.directory / "input", sealed=True)
        self._outputs = LinkedFiles(self.directory / "output", sealed=False)
        self._staged = LinkedFiles(self.directory / "staged", sealed=True)

    @property
    def hadoop(self) -> Mapping[str, str]:
        return {}

    def assert_safe(self) -> None:
        """Raise UnsafeKeyError if any key of the input commit can't be a file."""
        self._baseline()

    def files(self, below: str = "") -> Iterator[str]:
        if self._staged_entries is not None:
            found = set(self._staged_entries)
        else:
            found = set(self._baseline())
            if self._written is not None:
                found = {path for path in found if not self._is_output(path)} | self._written
        return iter(sorted(path for path in found if is_below(path, below)))

    def input(self, path: str) -> str:
        return self._link_below(path, self._baseline(), self._inputs)

    def output(self, path: str) -> str:
        if self.staging is None:
            raise read_only_error(path)
        for folder in parents(path):
            if folder in self._baseline():
                raise below_file_error(path, folder)
        self.staging()
        with self._lock:
            if not self._is_output(path):
                self._put_baseline(path)
                others = {root for root in self._output_paths if not is_below(root, path)}
                self._output_paths = others | {path}
            (self._outputs.directory / path).parent.mkdir(parents=True, exist_ok=True)
        return self._outputs.uri(path)

    def scan(self) -> ChangeSet:
        start, baseline = key_prefix(self.prefix), self._baseline()
        self._assert_links_unchanged()
        written, uploads = set(), []
        for path, stat in _walk(self._outputs.directory):
            if self._outputs.is_untouched(path, stat):
                written.add(path)
                continue
            file = self._outputs.directory / path
            if is_leftover(path, keep_success=self.keep_success):
                file.unlink()
                continue
            if not self._is_output(path):
                raise outside_outputs_error(path)
            assert_storable(path)
            written.add(path)
            uploads.append(Upload(start + path, file, Signature.of(stat), spare=True))
        self._written = written
        changed = [upload for upload in uploads if not self._is_same(upload, baseline, start)]
        removed = [path for path in baseline if self._is_output(path) and path not in written]
        return ChangeSet(tuple(changed), tuple(start + path for path in removed))

    def look_at_staged(self, commit: str) -> None:
        self._staged_entries = self._list(commit)

    def input_for_checks(self, path: str) -> str:
        if self._staged_entries is None:
            return self.input(path)
        return self._link_below(path, self._staged_entries, self._staged)

    def _link_below(
        self, path: str, entries: Mapping[str, ObjectEntry], target: LinkedFiles
    ) -> str:
        """Return a URI where everything below the path can be read, and nothing written."""
        root = without_wildcards(path)
        with self._lock:  # a body may have threads
            target.add({p: e for p, e in entries.items() if is_below(p, root)}, self._link)
        return target.uri(path)

    def _put_baseline(self, below: str) -> None:
        """Put the input commit's files below a path there, except in outputs it has already."""
        wanted = {
            path: entry
            for path, entry in self._baseline().items()
            if is_below(path, below) and not self._is_output(path)
        }
        rewritten = {path: entry for path, entry in wanted.items() if _may_be_rewritten(path)}
        self._outputs.add(rewritten, self._copy)
        self._outputs.add(wanted, self._link)

    def _link(self, wanted: Sequence[Download]) -> None:
        if can_drop_privileges():
            self.linking_store.link(wanted)
        else:
            self._copy(wanted)

    def _copy(self, wanted: Sequence[Download]) -> None:
        self.store.download(self.workspace.repository, self.workspace.ref, wanted)

    def _baseline(self) -> dict[str, ObjectEntry]:
        if self._baseline_entries is None:
            self._baseline_entries = self._list(self.workspace.ref)
        return self._baseline_entries

    def _list(self, ref: str) -> dict[str, ObjectEntry]:
        entries = {
            entry.key: entry
            for entry in self.store.list_objects(
                self.workspace.repository, ref, prefix=key_prefix(self.prefix)
            )
        }
        return {path: entries[key] for key, path in workspace_paths(entries, self.prefix).items()}

    def _is_output(self, path: str) -> bool:
        return any(is_below(path, root) for root in self._output_paths)

    def _is_same(self, upload: Upload, baseline: Mapping[str, ObjectEntry], start: str) -> bool:
        """Whether a file with an old name has its old content. Spark's own names are always new."""
        entry = baseline.get(upload.key[len(start) :])
        return (
            entry is not None
            and entry.size == upload.signature.size
            and self.store.holds(entry, upload.path)
        )

    def _assert_links_unchanged(self) -> None:
        """Only Spark's processes surely obey permissions: the body may run as root."""
        for linked in (self._inputs, self._outputs):
            for path in linked.written_in_place():
                raise UnsupportedFileError(
                    f"the body wrote into {path!r} in place, which is the store's own file: every "
                    "commit that contains it is damaged",
                    fix="write with Spark, or remove a file before writing it anew; `perago "
                    "verify` lists the damage, and `perago import` of the same file repairs it",
                )


class LinkedFiles:
    """A directory with objects of a store in it, each put there once.

    In a ``sealed`` one, a process that obeys permissions can't add, remove or replace anything.
    """

    def __init__(self, directory: Path, *, sealed: bool) -> None:
        self.directory = directory
        self._sealed = sealed
        self._files: dict[str, _LinkedFile] = {}

    def uri(self, path: str) -> str:
        """Return the URI in Hadoop's sense, which has no escapes: a ``%`` stands for itself."""
        return f"file://{self.directory}/{path}"

    def add(self, wanted: Mapping[str, ObjectEntry], put_files: PutFiles) -> None:
        """Put these there, by ``put_files``, except those that were put there before."""
        new = {path: entry for path, entry in wanted.items() if path not in self._files}
        folders = sorted({folder for path in new for folder in ("", *parents(path))})
        self.directory.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            (self.directory / folder).mkdir(exist_ok=True)
            if self._sealed:
                (self.directory / folder).chmod(_WRITABLE)
        put_files([Download(entry, self.directory / path) for path, entry in new.items()])
        for path in new:
            self._files[path] = _LinkedFile.of((self.directory / path).stat())
        for folder in folders if self._sealed else ():
            (self.directory / folder).chmod(_SEALED)

    def is_untouched(self, path: str, stat: os.stat_result) -> bool:
        """Whether the file there now is the one that was put there."""
        file = self._files.get(path)
        return file is not None and file.is_same(stat)

    def written_in_place(self) -> Iterator[str]:
        """Yield the links whose file, the store's own, was written although it is read-only."""
        for path, file in self._files.items():
            if not file.is_link:
                continue
            try:
                stat = (self.directory / path).lstat()
            except OSError:  # only the name was removed
                continue
            if stat.st_ino == file.inode and not file.is_same(stat):
                yield path


class _LinkedFile(NamedTuple):
    """A file's stat right after it was put there. ``is_link`` is False for a copy."""

    inode: int
    size: int
    mtime_ns: int
    is_link: bool

    @classmethod
    def of(cls, stat: os.stat_result) -> _LinkedFile:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_nlink > 1)

    def is_same(self, stat: os.stat_result) -> bool:
        return self[:3] == (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _may_be_rewritten(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_REWRITTEN) or "/_delta_log/" in f"/{path}"


def _walk(directory: Path) -> Iterator[tuple[str, os.stat_result]]:
    pending = [""] if directory.is_dir() else []
    while pending:
        folder = pending.pop()
        with os.scandir(directory / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.is_file(follow_symlinks=False):
                    yield path, entry.stat(follow_symlinks=False)
                else:
                    raise UnsupportedFileError(
                        f"{path!r} is neither a file nor a directory",
                        fix="have the task write tables only",
                    )
