"""Checks of this machine: Python, directories, disks, locks, SQLite, the embedded store, runs."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from perago.doctor.finding import Finding
from perago.errors import PeragoError, RuntimeConfigError
from perago.file_lock import is_locked, try_lock
from perago.formatting import RUN_LENGTH, count, size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perago.settings import Settings


OLDEST_PYTHON = (3, 11)
OLDEST_SQLITE = (3, 35)
SCARCE_BYTES = 1_000_000_000
TOO_FEW_BYTES = 50_000_000


def diagnose(settings: Settings) -> Iterator[Finding]:
    """Check this machine, in an order in which an early failure explains later ones.

    Where attempts and runs are kept depends on the lakeFS in use. If its settings are missing,
    which the lakeFS checks report, those directories are not checked.
    """
    checks: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _python,
        _home,
        *((_attempts, _disk, _filesystem, _sqlite) if has_store(settings) else ()),
        *((_store,) if settings.store == "embedded" else ()),
        *((_runs,) if has_store(settings) and settings.orchestrator == "embedded" else ()),
        *((_leftovers,) if has_store(settings) else ()),
        _failpoints,
    )
    for check in checks:
        name = check.__name__.strip("_")
        try:
            yield from check(settings)
        except PeragoError as error:
            yield Finding.of_error(name, error)
        except OSError as error:
            yield Finding(name, "fail", str(error), "make it writable for this user")


def has_store(settings: Settings) -> bool:
    """Whether the settings name a store."""
    try:
        return settings.store == "embedded" or bool(settings.lakefs_login)
    except RuntimeConfigError:
        return False


def _python(_settings: Settings) -> Iterator[Finding]:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        yield Finding("python", "fail", found, "install Python 3.11 or newer")
    else:
        yield Finding("python", "ok", found)


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.home.absolute()
    if problem := write_problem(home):
        fix = "name a directory that this user can write: --home, or PERAGO_HOME"
        yield Finding("home", "fail", f"{home}: {problem}", fix)
    else:
        yield Finding("home", "ok", str(home))


def _attempts(settings: Settings) -> Iterator[Finding]:
    if problem := write_problem(settings.attempts):
        fix = "set PERAGO_WORKSPACE_ROOT to a directory that this user can write"
        yield Finding("attempts", "fail", f"{settings.attempts}: {problem}", fix)
    else:
        yield Finding("attempts", "ok", str(settings.attempts))


def write_problem(directory: Path) -> str | None:
    """Why this user can't create files there; None if that works."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".perago-doctor-"):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _disk(settings: Settings) -> Iterator[Finding]:
    for name, path in (("disk of home", settings.home), ("disk of attempts", settings.attempts)):
        free = shutil.disk_usage(path).free
        fix = "free some space, or move it to a larger disk"
        if free < TOO_FEW_BYTES:
            yield Finding(name, "fail", f"{size(free)} free", fix)
        elif free < SCARCE_BYTES:
            yield Finding(name, "warn", f"{size(free)} free", fix)
        else:
            yield Finding(name, "ok", f"{size(free)} free")


def _filesystem(settings: Settings) -> Iterator[Finding]:
    for name, path in (("home", settings.home), ("attempts", settings.attempts)):
        if _locks_work(path):
            yield Finding(f"locks in {name}", "ok", "files can be locked")
        else:
            fix = "use a local disk: without locks, running attempts look like crashed ones"
            yield Finding(
                f"locks in {name}", "fail", "a locked file can be locked a second time", fix
            )
    from perago.adapters.local.engine import folds_case

    if folds_case(settings.attempts):
        detail = "names that differ only in case are the same file"
        fix = "such objects are refused here; use a case-sensitive disk for them"
        yield Finding("names", "warn", detail, fix)
    else:
        yield Finding("names", "ok", "case-sensitive")
    copies = (
        "large files share their blocks"
        if _shares_blocks(settings.attempts)
        else "files are copied"
    )
    yield Finding("copies", "ok", copies)


def _locks_work(directory: Path) -> bool:
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".perago-doctor-") as held:
        return try_lock(held.fileno()) and is_locked(Path(held.name))


def _shares_blocks(directory: Path) -> bool:
    """Whether a copy of a file shares the original's blocks on this filesystem."""
    from perago.adapters.local_io.file_copy import share_blocks

    with tempfile.TemporaryFile(dir=directory) as one, tempfile.TemporaryFile(dir=directory) as two:
        one.write(b"perago")
        one.flush()
        return share_blocks(one.fileno(), two.fileno())


def _sqlite(settings: Settings) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(dir=settings.home, prefix=".perago-doctor-") as directory:
        connection = sqlite3.connect(Path(directory) / "probe.db")
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        connection.close()
    found = f"{sqlite3.sqlite_version}, journal mode {mode}"
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        yield Finding("sqlite", "fail", found, "use a Python built with SQLite 3.35 or newer")
    elif mode != "wal":
        yield Finding(
            "sqlite", "fail", found, "put home on a local disk: SQLite's WAL needs shared memory"
        )
    else:
        yield Finding("sqlite", "ok", found)


def _store(settings: Settings) -> Iterator[Finding]:
    from perago.wiring import open_embedded

    branches = 0
    with closing(open_embedded(settings)) as store:
        repositories = store.repositories()
        for repository in repositories:
            for branch in store.branches(repository):
                next(iter(store.list_objects(repository, branch.head)), None)
                branches += 1
    detail = f"{count(len(repositories), 'repository')}, {count(branches, 'branch')} can be read"
    yield Finding("store", "ok", f"{detail}; `perago verify` re-hashes everything")


def _runs(settings: Settings) -> Iterator[Finding]:
    from perago.model.run import RunStatus
    from perago.wiring import open_queue
    from perago.worker.local_runner import is_held

    with closing(open_queue(settings)) as queue:
        records = queue.runs(limit=1000)
    for record in records:
        if record.status is RunStatus.RUNNING and not is_held(settings, record.id):
            name = record.id[:RUN_LENGTH]
            fix = f"`perago run --resume {name}`, or `perago cancel {name}`"
            yield Finding("runs", "warn", f"run {name} is RUNNING, but no process works on it", fix)
            return
    yield Finding("runs", "ok", "every running run has its process")


def _leftovers(settings: Settings) -> Iterator[Finding]:
    from perago.flow.attempt_directory import leftovers

    dead = sum(1 for _ in leftovers(settings.attempts))
    if dead:
        detail = f"{count(dead, 'directory')} of dead attempts in {settings.attempts}"
        yield Finding("leftovers", "warn", detail, "remove them with `perago gc`")
    else:
        yield Finding("leftovers", "ok", "none")


def _failpoints(settings: Settings) -> Iterator[Finding]:
    if settings.failpoints:
        detail = f"faults are injected: {settings.failpoints}"
        yield Finding("failpoints", "warn", detail, "unset PERAGO_FAILPOINTS: it is for tests")
