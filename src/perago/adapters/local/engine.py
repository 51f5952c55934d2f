"""A task's workspace as a private, writable directory, and what the task changed in it.

Finding changes costs a stat per file. A file is read again only if its stat differs from the one
taken when it was put there *and* its size doesn't: a new file, or one of another size, has changed
without a doubt. Executable bits and empty directories are no part of a workspace.
"""

from __future__ import annotations

import gc
import hashlib
import os
import secrets
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

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


# --- Facts about the filesystem an attempt works on that can only be found out by trying ---
_TICK_LIMIT_SECONDS = 5.0
_TICK_PAUSE_SECONDS = 0.0005


def folds_case(directory: Path) -> bool:
    """Whether names that differ only in case are one file here."""
    with _probe(directory) as probe:
        return (directory / probe.name.swapcase()).exists()


def wait_for_next_tick(directory: Path, since_ns: int) -> None:
    """Return once a file changed now would get a later change time than ``since_ns``.

    Filesystems stamp files with a coarse clock. Without this, a write right after the stat that
    is compared with later could carry the very same time and stay unnoticed.
    """
    deadline = time.monotonic() + _TICK_LIMIT_SECONDS
    with _probe(directory) as probe:
        while probe.stat().st_ctime_ns <= since_ns:
            if time.monotonic() > deadline:
                raise RuntimeConfigError(
                    f"the filesystem of {directory} doesn't tell time: a file touched now seems "
                    "older than one written before",
                    fix="point PERAGO_WORKSPACE_ROOT at a local disk",
                )
            time.sleep(_TICK_PAUSE_SECONDS)
            os.utime(probe)


@contextmanager
def _probe(directory: Path) -> Iterator[Path]:
    """A file of a name nobody else uses, gone afterwards."""
    probe = directory / f".perago-probe-{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
    except OSError as error:
        raise RuntimeConfigError(
            f"can't write to {directory}: {error.strerror}",
            fix="free some room, or name a directory this user can write",
        ) from error
    try:
        yield probe
    finally:
        probe.unlink(missing_ok=True)


_HASHING_THREADS = 4


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
        # A directory is private, and staged when the body is through.
        del staging, computing, execution
        with _no_search_for_cycles():
            return self._open(store, workspace, prefix, directory, progress)

    def _open(
        self,
        store: Store,
        workspace: WorkspaceRef,
        prefix: str,
        directory: Path,
        progress: OnTransfer | None,
    ) -> LocalWorkspace:
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


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """Keep Python from searching the many small values made here for cycles they can't have."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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

    def scan(self) -> ChangeSet:
        with _no_search_for_cycles():
            return self._scan()

    def _scan(self) -> ChangeSet:
        found = dict(_walk(self.directory, self.baseline, at_root=not self.key_start))
        self.files = sorted(found)
        changed, doubtful = self._compare(found)
        changed += self._with_other_bytes(doubtful)
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
        """What has changed without a doubt, and what has to be read to know."""
        changed, doubtful = [], []
        for path, now in found.items():
            before = self.baseline.get(path)
            if before is None or before.signature.size != now.st_size:
                changed.append(path)
            elif not before.signature.is_of(now):
                doubtful.append(path)
        return changed, doubtful

    def _assert_readable(self, paths: Sequence[str]) -> None:
        for path in paths:
            if not os.access(self.directory / path, os.R_OK):
                raise _refused(path, "it can't be read")

    def _with_other_bytes(self, paths: Sequence[str]) -> list[str]:
        if not paths:
            return []
        with ThreadPoolExecutor(_HASHING_THREADS) as pool:
            hashes = pool.map(self._sha256, paths)
            return [
                p for p, now in zip(paths, hashes, strict=True) if now != self.baseline[p].sha256
            ]

    def _sha256(self, path: str) -> str:
        try:
            with (self.directory / path).open("rb", buffering=0) as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except PermissionError:
            raise _refused(path, "it can't be read") from None


def _walk(
    root: Path, known: Container[str], *, at_root: bool
) -> Iterator[tuple[str, os.stat_result]]:
    """Every regular file below ``root`` with its stat; anything else but a directory is refused.

    The names of ``known`` ones have been checked when they were fetched.
    """
    if not stat.S_ISDIR(_lstat(root).st_mode):
        raise _refused("", "the workspace directory was replaced by something else")
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
        raise _refused("", "the task removed its workspace directory itself") from None


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
        fix="have the task leave only readable, regular files with portable names",
    )
