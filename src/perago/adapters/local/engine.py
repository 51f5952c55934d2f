"""The engine for plain Python: a private, writable directory, and what the task changed in it.

Finding changes costs a stat per file. A file is read again only if its size is the same as when it
was fetched and its times or inode are not. Executable bits and empty directories are not part of a
workspace.
"""

from __future__ import annotations

import gc
import hashlib
import os
import secrets
import stat
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perago.adapters.local_io.parallel import in_parallel
from perago.errors import RuntimeConfigError, UnsupportedFileError
from perago.model.commit import ACTIONS_PREFIX
from perago.model.progress import Transfer
from perago.model.workspace import (
    ChangeSet,
    Download,
    Signature,
    Upload,
    key_prefix,
    problem_with,
    workspace_paths,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from perago.model.attempt import Execution
    from perago.model.tables import TableReport, TableRules, TableSource
    from perago.model.workspace import FetchedFile, WorkspaceRef
    from perago.ports.engine import OnComputation, OpenStagingBranch
    from perago.ports.store import OnTransfer, Store


_HASHING_THREADS = 4
_TICK_LIMIT_SECONDS = 5.0
_TICK_PAUSE_SECONDS = 0.0005


@contextmanager
def _without_cycle_collection() -> Iterator[None]:
    """Switch off Python's cycle collector: the many small values made meanwhile have no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class LocalEngine:
    """Implements :class:`perago.ports.engine.Engine` for bodies that take a ``Path``."""

    def load(self) -> None: ...

    def warm_up(self) -> None: ...

    def stop(self) -> None: ...

    def scan(self, directory: Path, prefix: str) -> ChangeSet:
        """A directory's files, as if a task had written them into an empty workspace.

        Raises as :meth:`LocalWorkspace.scan` does.
        """
        return LocalWorkspace(directory, key_prefix(prefix), {}, Transfer(), Transfer(), ()).scan()

    @_without_cycle_collection()
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
    ) -> LocalWorkspace:
        del staging, computing, execution  # a directory is staged after the body
        start = key_prefix(prefix)
        entries = list(store.list_objects(workspace.repository, workspace.ref, prefix=start))
        paths = workspace_paths(
            (entry.key for entry in entries), prefix, folds_case=folds_case(directory)
        )
        _make_directories(directory, paths.values())
        # Plain strings: a Path for each would take longer than creating its file.
        wanted = [
            Download(entry, f"{directory}/{paths[entry.key]}")
            for entry in entries
            if entry.key in paths
        ]
        fetched = store.download(workspace.repository, workspace.ref, wanted, progress)
        files = fetched.files
        wait_for_next_tick(directory, max((f.signature.ctime_ns for f in files), default=0))
        return LocalWorkspace(
            directory,
            start,
            {paths[f.key]: f for f in files},
            Transfer(len(files), sum(f.signature.size for f in files)),
            fetched.moved,
            sorted(paths.values()),
        )


def _make_directories(directory: Path, paths: Iterable[str]) -> None:
    made = {""}
    for path in paths:
        parent = path.rpartition("/")[0]
        if parent not in made:
            (directory / parent).mkdir(parents=True, exist_ok=True)
            made.add(parent)


@dataclass(slots=True)
class LocalWorkspace:
    """Implements :class:`perago.ports.engine.OpenWorkspace`."""

    directory: Path
    key_start: str
    baseline: Mapping[str, FetchedFile]
    fetched: Transfer
    moved: Transfer
    files: Sequence[str]
    notes: Sequence[str] = field(default_factory=list)

    @property
    def argument(self) -> Path:
        return self.directory

    @property
    def checks_staged_data(self) -> bool:
        return False

    def look_at_staged(self, commit: str) -> None:
        """Does nothing: guardrails look at the directory."""
        del commit

    def check_tables(
        self, rules: Sequence[TableRules], sources: Mapping[str, TableSource]
    ) -> Sequence[TableReport]:
        """Raises NotImplementedError: a task on local files can't declare rules for tables."""
        del sources
        raise NotImplementedError(f"{rules[0].label} needs Spark")

    def explain(self, error: BaseException) -> str | None:
        del error
        return None

    def close(self) -> None: ...

    @_without_cycle_collection()
    def scan(self) -> ChangeSet:
        found = dict(_walk(self.directory, self.baseline, at_root=not self.key_start))
        self.files = sorted(found)
        changed, unsure = self._compare(found)
        changed += self._with_other_bytes(unsure)
        self._assert_readable(changed)
        self.notes = _notes(found, changed)
        return ChangeSet(
            uploads=tuple(
                Upload(self.key_start + path, self.directory / path, Signature.of(found[path]))
                for path in sorted(changed)
            ),
            deletes=tuple(
                self.key_start + path for path in sorted(self.baseline) if path not in found
            ),
        )

    def _compare(self, found: Mapping[str, os.stat_result]) -> tuple[list[str], list[str]]:
        """The files that have certainly changed, and those that must be read to know."""
        changed, unsure = [], []
        for path, now in found.items():
            before = self.baseline.get(path)
            if before is None or before.signature.size != now.st_size:
                changed.append(path)
            elif not before.signature.is_of(now):
                unsure.append(path)
        return changed, unsure

    def _assert_readable(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not os.access(self.directory / path, os.R_OK):
                raise _refused(path, "it can't be read")

    def _with_other_bytes(self, paths: Sequence[str]) -> list[str]:
        hashes = in_parallel(paths, lambda p: (p, self._sha256(p)), threads=_HASHING_THREADS)
        return [path for path, sha256 in hashes if sha256 != self.baseline[path].sha256]

    def _sha256(self, path: str) -> str:
        try:
            with (self.directory / path).open("rb", buffering=0) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except PermissionError:
            raise _refused(path, "it can't be read") from None


def _walk(
    root: Path, known: Container[str], *, at_root: bool
) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below ``root`` with its stat; anything but files and folders is refused.

    The names of ``known`` files were checked when they were fetched.
    """
    if not stat.S_ISDIR(_lstat(root).st_mode):
        raise _refused("", "the task replaced its workspace directory by something else")
    pending = [""]
    while pending:
        folder = pending.pop()
        for entry in _entries(root, folder):
            path = f"{folder}{entry.name}"
            if path not in known and (problem := problem_with(path)):
                raise _refused(path, problem)
            if entry.is_dir(follow_symlinks=False):
                if at_root and f"{path}/" == ACTIONS_PREFIX:
                    raise _refused(path, "a task can't change the repository's own actions")
                pending.append(f"{path}/")
            elif entry.is_file(follow_symlinks=False):
                yield path, _stat(entry, path)
            else:
                raise _refused(path, _kind_of(entry))


def _lstat(root: Path) -> os.stat_result:
    try:
        return root.lstat()
    except FileNotFoundError:
        raise _refused("", "the task removed its workspace directory") from None


def _stat(entry: os.DirEntry[str], path: str) -> os.stat_result:
    try:
        return entry.stat(follow_symlinks=False)
    except PermissionError:
        raise _refused(path, "its directory can't be searched") from None


def _entries(root: Path, folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(root / folder if folder else root) as entries:
            return list(entries)
    except PermissionError:
        raise _refused(folder, "the directory can't be read") from None


def _kind_of(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "it is a symlink, and a workspace holds files only"
    mode = entry.stat(follow_symlinks=False).st_mode
    kinds = {stat.S_IFSOCK: "a socket", stat.S_IFIFO: "a pipe"}
    return f"it is {kinds.get(stat.S_IFMT(mode), 'a device')}, and a workspace holds files only"


def _notes(found: Mapping[str, os.stat_result], changed: Sequence[str]) -> list[str]:
    executable = [path for path in sorted(changed) if found[path].st_mode & 0o111]
    if not executable:
        return []
    return [f"executable bits are not kept: {', '.join(executable[:10])}"]


def _refused(path: str, why: str) -> UnsupportedFileError:
    return UnsupportedFileError(
        f"{path!r}: {why}" if path else f"workspace: {why}",
        fix="leave only readable, regular files with portable names in the workspace",
    )


# --- the filesystem, as probed --------------------------------------------------------------------


def folds_case(directory: Path) -> bool:
    """Whether names that differ only in case are one file here."""
    with _probe(directory) as probe:
        return (directory / probe.name.swapcase()).exists()


def wait_for_next_tick(directory: Path, since_ns: int) -> None:
    """Wait until a file that is changed now gets a later change time than ``since_ns``.

    Filesystems stamp files with a coarse clock. Without this wait, a write right after the fetch
    could carry the same time as the fetched file and stay unnoticed.

    Raises RuntimeConfigError if the filesystem's clock does not move.
    """
    deadline = time.monotonic() + _TICK_LIMIT_SECONDS
    with _probe(directory) as probe:
        while probe.stat().st_ctime_ns <= since_ns:
            if time.monotonic() > deadline:
                raise RuntimeConfigError(
                    f"the clock of the filesystem of {directory} does not move: a file touched now "
                    "seems older than one written before",
                    fix="point PERAGO_WORKSPACE_ROOT at a local disk",
                )
            time.sleep(_TICK_PAUSE_SECONDS)
            os.utime(probe)


@contextmanager
def _probe(directory: Path) -> Iterator[Path]:
    """A file with a unique name, removed afterwards."""
    probe = directory / f".perago-probe-{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
    except OSError as error:
        raise RuntimeConfigError(
            f"can't write to {directory}: {error.strerror}",
            fix="free space there, or choose a directory that this user can write",
        ) from error
    try:
        yield probe
    finally:
        probe.unlink(missing_ok=True)
