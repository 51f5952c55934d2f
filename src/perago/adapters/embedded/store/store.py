"""The embedded store: the store port in one directory, for any number of processes.

``store.db`` holds repositories, branches, commits and trees; ``objects/`` holds the bytes. A branch
moves in one transaction that also compares its head. Bytes are on disk before a row refers to them.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO, Literal

from perago.adapters.embedded.store import trees
from perago.adapters.embedded.store.blobs import (
    DOWNLOAD_THREADS,
    UPLOAD_THREADS,
    Blobs,
    BlobWriter,
)
from perago.adapters.embedded.store.refs import (
    MICROSECONDS,
    SCHEMA,
    BranchRow,
    Refs,
    check_branch_name,
    check_key,
    check_repository_name,
    insert_branch,
    insert_commit,
)
from perago.adapters.embedded.store.trees import TreeRows
from perago.adapters.local_io.file_copy import make_directory, write_error
from perago.adapters.local_io.parallel import Tally, in_parallel
from perago.adapters.local_io.sqlite import Database
from perago.errors import (
    BranchExistsError,
    HeadMovedError,
    RepositoryExistsError,
    StoreError,
    StoreRefusedError,
)
from perago.model.commit import Atomicity, Difference, ObjectEntry
from perago.model.progress import Transfer
from perago.model.workspace import Fetched

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.adapters.embedded.store.gc import GcReport
    from perago.adapters.embedded.store.trees import BuiltTree, Entry
    from perago.adapters.embedded.store.verify import VerifyReport
    from perago.model.commit import Branch, Commit, DifferenceKind
    from perago.model.workspace import Download, FetchedFile, Upload
    from perago.ports.environment import Clock
    from perago.ports.store import OnTransfer


_NAMED_CONFLICTS = 5


class EmbeddedStore:
    """Opens the store at ``root``; creates it if there is none.

    ``semantics="lakefs"`` removes the conditional updates, to test against what lakeFS without our
    hook can do. ``durable=False`` is for tests: the store survives a killed process, but not a
    power cut.

    Raises StoreFormatError for a store of another format, and StoreFullError for a directory that
    can't be written.
    """

    def __init__(
        self,
        root: Path,
        *,
        clock: Clock | None = None,
        semantics: Literal["atomic", "lakefs"] = "atomic",
        durable: bool = True,
    ) -> None:
        self.root = root.absolute()
        try:
            make_directory(self.root, durable=durable)
        except OSError as error:
            raise write_error(self.root, error) from error
        self._now = time.time if clock is None else clock.now
        self._conditional = semantics == "atomic"
        self._blobs = Blobs(self.root, durable=durable)
        self._database = Database(self.root / "store.db", SCHEMA, durable=durable)
        self._database.connection()
        self._refs = Refs(self._database)
        self._trees = TreeRows(self._database)

    def close(self) -> None:
        """Close this process's connections to the database."""
        self._database.close()

    # --- repositories and history -------------------------------------------------------------

    def create_repository(self, repository: str, *, default_branch: str = "main") -> Commit:
        check_repository_name(repository)
        check_branch_name(default_branch)
        now = self._now_us()
        with self._database.writing() as connection:
            created = connection.execute(
                "INSERT OR IGNORE INTO repositories VALUES (?, ?, ?)",
                (repository, default_branch, now),
            )
            if not created.rowcount:
                raise RepositoryExistsError(
                    f"repository {repository!r} exists already",
                    fix="use it, or choose another name",
                )
            self._trees.insert(connection, trees.EMPTY)
            root = insert_commit(
                connection,
                repository,
                (),
                trees.EMPTY.id,
                message="Repository created",
                metadata={},
                created_us=now,
            )
            insert_branch(connection, repository, default_branch, root.id, created_us=now)
        return root

    def repositories(self) -> list[str]:
        return [
            name for (name,) in self._database.query("SELECT name FROM repositories ORDER BY 1")
        ]

    def new_branch_source(self, repository: str) -> None:
        """A new branch starts empty. Raises RepositoryNotFoundError."""
        self._refs.check_repository(repository)

    def get_commit(self, repository: str, ref: str) -> Commit:
        return self._refs.resolve(repository, ref).commit

    def history(self, repository: str, ref: str, *, limit: int | None = None) -> Iterator[Commit]:
        start = self.get_commit(repository, ref)
        return islice(self._refs.first_parents(repository, start), limit)

    @property
    def outlives_callers(self) -> bool:
        """False: a request dies with its process."""
        return False

    def atomicity(self, repository: str, ref: str, *, trial: str | None = None) -> Atomicity:  # noqa: ARG002
        """The same for every commit. Raises as :meth:`get_commit` does."""
        self.get_commit(repository, ref)
        return Atomicity(cas_merge=self._conditional, cas_relocate=self._conditional)

    # --- branches ------------------------------------------------------------------------------

    def head(self, repository: str, branch: str) -> Commit:
        with self._database.reading():
            return self._refs.commit(repository, self._refs.branch(repository, branch).head)

    def branches(self, repository: str, *, prefix: str = "") -> Iterator[Branch]:
        return iter(self._refs.branches(repository, prefix))

    def create_branch(self, repository: str, branch: str, at: str, *, hidden: bool = False) -> None:
        check_branch_name(branch)
        with self._database.writing() as connection:
            head = self._refs.resolve(repository, at).commit.id
            now = self._now_us()
            if not insert_branch(
                connection, repository, branch, head, created_us=now, hidden=hidden
            ):
                raise BranchExistsError(
                    f"branch {branch!r} of {repository!r} exists already",
                    fix="use it, or choose another name",
                )

    def delete_branch(self, repository: str, branch: str, *, timeout: float | None = None) -> None:
        with self._database.writing(wait_seconds=timeout) as connection:
            row = self._refs.branch(repository, branch)
            connection.execute("DELETE FROM branches WHERE id = ?", (row.id,))
            self._release(connection, row.head)

    # --- objects -------------------------------------------------------------------------------

    def list_objects(self, repository: str, ref: str, *, prefix: str = "") -> Iterator[ObjectEntry]:
        """The objects at the time of the call; later changes of the ref don't show."""
        with self._database.reading():
            commit, branch = self._refs.resolve(repository, ref)
            changes = [] if branch is None else self._refs.uncommitted(branch, prefix)
        entries = trees.scan(self._trees.tree(commit.tree), prefix, self._trees.load)
        if changes:
            entries = trees.overlay(entries, changes)
        return (ObjectEntry(key, size, sha256) for key, sha256, size in entries)

    def download(
        self,
        repository: str,
        ref: str,
        wanted: Sequence[Download],
        progress: OnTransfer | None = None,
    ) -> Fetched:
        self.get_commit(repository, ref)
        total_bytes = sum(item.entry.size for item in wanted)
        tally = Tally(progress, objects=len(wanted), total_bytes=total_bytes)

        def fetch(item: Download) -> FetchedFile:
            fetched = self._blobs.fetch(item.entry, os.fspath(item.path), tally.add_bytes)
            tally.add_object()
            return fetched

        fetched = in_parallel(wanted, fetch, threads=DOWNLOAD_THREADS)
        tally.end()
        return Fetched(fetched, Transfer(len(wanted), total_bytes, len(wanted), total_bytes))

    def link(self, wanted: Sequence[Download]) -> None:
        """Make each object readable as a file by a hard link; copy it where links don't work.

        Linked files are the store's own and must not be written; removing one only removes the
        link. Raises CorruptObjectError for a file that is missing or has the wrong size.
        """
        for item in wanted:
            self._blobs.link(item.entry, os.fspath(item.path))

    def upload(
        self,
        repository: str,
        branch: str,
        files: Sequence[Upload],
        progress: OnTransfer | None = None,
    ) -> Transfer:
        total_bytes = sum(upload.signature.size for upload in files)
        tally = Tally(progress, objects=len(files), total_bytes=total_bytes)

        def add(upload: Upload) -> Entry:
            sha256, size = writer.add_file(upload, tally.add_bytes)
            tally.add_object()
            return upload.key, sha256, size

        with self._writer(repository, branch, [upload.key for upload in files]) as writer:
            entries = in_parallel(files, add, threads=UPLOAD_THREADS)
            self._put(repository, branch, writer, entries)
        tally.end()
        return Transfer(writer.new_objects, writer.new_bytes, len(files), total_bytes)

    def put_bytes(self, repository: str, branch: str, key: str, data: bytes) -> None:
        """Put one small object on a branch, uncommitted."""
        with self._writer(repository, branch, [key]) as writer:
            self._put(repository, branch, writer, [(key, *writer.add_bytes(data))])

    def open_object(self, repository: str, ref: str, key: str) -> BinaryIO:
        """An object's bytes as a stream. Raises StoreError if there is no such object.

        Reading to the end raises CorruptObjectError if the bytes don't match the object's hash.
        """
        with self._database.reading():
            commit, branch = self._refs.resolve(repository, ref)
            changes = dict([] if branch is None else self._refs.uncommitted(branch, key))
            tree = self._trees.tree(commit.tree)
            entry = changes[key] if key in changes else trees.find(tree, key, self._trees.load)
        if entry is None:
            raise StoreError(
                f"there is no object {key!r} at {ref!r} of repository {repository!r}",
                fix="list the objects there",
            )
        return self._blobs.open(key, entry[1])

    def read_bytes(self, repository: str, ref: str, key: str) -> bytes:
        """All bytes of a small object. Raises as :meth:`open_object` and its stream do."""
        with self.open_object(repository, ref, key) as stream:
            return stream.read()

    def holds(self, entry: ObjectEntry, path: Path) -> bool:
        with path.open("rb", buffering=0) as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        # False if they are damaged here: an upload of good bytes repairs them.
        return found == entry.checksum and self._blobs.has_sound(found, entry.size)

    def delete_objects(self, repository: str, branch: str, keys: Sequence[str]) -> None:
        for key in keys:
            check_key(key)
        with self._database.writing() as connection:
            row = self._refs.branch(repository, branch)
            connection.executemany(
                "INSERT OR REPLACE INTO uncommitted VALUES (?, ?, NULL, 0)",
                [(row.id, key) for key in keys],
            )

    def uncommitted(self, repository: str, branch: str, *, limit: int | None = 10) -> list[str]:
        with self._database.reading():
            row = self._refs.branch(repository, branch)
            return self._uncommitted_keys(repository, row, limit)

    def diff(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[Difference]:
        """A branch means its head here: uncommitted objects are not compared."""
        old, new = self.get_commit(repository, before), self.get_commit(repository, after)
        steps = trees.diff(
            self._trees.tree(old.tree), self._trees.tree(new.tree), prefix, self._trees.load
        )
        return (Difference(key, _object_entry(was), _object_entry(now)) for key, was, now in steps)

    def changed_keys(
        self, repository: str, before: str, after: str, *, prefix: str = ""
    ) -> Iterator[tuple[str, DifferenceKind]]:
        found = self.diff(repository, before, after, prefix=prefix)
        return ((difference.key, difference.kind) for difference in found)

    # --- commit, merge, relocate: how a branch moves ---------------------------------------------

    def commit(
        self, repository: str, branch: str, *, message: str, metadata: Mapping[str, str]
    ) -> Commit:
        with self._database.writing() as connection:
            row = self._refs.branch(repository, branch)
            head = self._refs.commit(repository, row.head)
            changes = self._refs.uncommitted(row)
            built = trees.apply(self._trees.tree(head.tree), changes, self._trees.load)
            if built.id == head.tree:
                raise StoreRefusedError(
                    f"branch {branch!r} of {repository!r} has nothing to commit",
                    fix="put or delete an object first: there are no empty commits",
                )
            connection.execute("DELETE FROM uncommitted WHERE branch = ?", (row.id,))
            return self._advance(
                connection, repository, row, built, message=message, metadata=metadata
            )

    def merge(
        self,
        repository: str,
        source: str,
        branch: str,
        *,
        expected_head: str | None,
        message: str,
        metadata: Mapping[str, str],
        timeout: float | None = None,
    ) -> Commit:
        with self._database.writing(wait_seconds=timeout) as connection:
            row = self._refs.branch(repository, branch)
            self._check_head(branch, row, expected_head)
            if keys := self._uncommitted_keys(repository, row, _NAMED_CONFLICTS):
                raise StoreRefusedError(
                    f"branch {branch!r} of {repository!r} has uncommitted objects: {_named(keys)}",
                    fix="commit or remove them, then merge",
                )
            built = self._merged(repository, source, branch, row)
            return self._advance(
                connection, repository, row, built, message=message, metadata=metadata
            )

    def relocate(
        self,
        repository: str,
        branch: str,
        to: str,
        *,
        expected_head: str | None,
        timeout: float | None = None,
    ) -> None:
        with self._database.writing(wait_seconds=timeout) as connection:
            row = self._refs.branch(repository, branch)
            self._check_head(branch, row, expected_head)
            target = self._refs.commit(repository, to)
            connection.execute("UPDATE branches SET head = ? WHERE id = ?", (target.id, row.id))
            self._release(connection, row.head)

    # --- upkeep ----------------------------------------------------------------------------------

    def gc(self, *, keep_seconds: float, dry_run: bool = False) -> GcReport:
        """Delete what no branch reaches, except commits younger than ``keep_seconds``.

        A commit's age counts from when it was made or was last a branch's head, so a reader of an
        unreachable commit has that long. Raises StoreUnavailableError if uploads don't pause.
        """
        from perago.adapters.embedded.store.gc import collect

        before_us = self._now_us() - int(keep_seconds * MICROSECONDS)
        return collect(self._database, self._blobs, before_us, dry_run=dry_run)

    def verify(self, progress: OnTransfer | None = None) -> VerifyReport:
        """Follow every reference from branch to bytes and compute every hash again.

        Damage is listed in the report; it raises nothing.
        """
        from perago.adapters.embedded.store.verify import verify

        with self._blobs.locked("verify", shared=True):
            return verify(self._database, self._blobs, progress)

    # --- steps of the above ------------------------------------------------------------------

    def _now_us(self) -> int:
        return round(self._now() * MICROSECONDS)

    @contextmanager
    def _writer(self, repository: str, branch: str, keys: Sequence[str]) -> Iterator[BlobWriter]:
        self._refs.branch(repository, branch)
        for key in keys:
            check_key(key)
        with self._blobs.locked("an upload", shared=True):
            yield BlobWriter(self._blobs)

    def _put(
        self, repository: str, branch: str, writer: BlobWriter, entries: Sequence[Entry]
    ) -> None:
        writer.finish()
        with self._database.writing() as connection:
            row = self._refs.branch(repository, branch)
            connection.executemany(
                "INSERT OR REPLACE INTO uncommitted VALUES (?, ?, ?, ?)",
                [(row.id, *entry) for entry in entries],
            )

    def _uncommitted_keys(self, repository: str, row: BranchRow, limit: int | None) -> list[str]:
        changes = self._refs.uncommitted(row)
        if not changes:
            return []
        tree = self._trees.tree(self._refs.commit(repository, row.head).tree)
        return [
            step.key for step in islice(trees.effective(tree, changes, self._trees.load), limit)
        ]

    def _check_head(self, branch: str, row: BranchRow, expected_head: str | None) -> None:
        if expected_head is None:
            return
        if not self._conditional:
            raise StoreRefusedError(
                f"this store can't update {branch!r} conditionally on its head",
                fix="leave expected_head out where atomicity() doesn't offer it",
            )
        if row.head != expected_head:
            raise HeadMovedError(
                f"branch {branch!r} is at {row.head}, not at the expected {expected_head}",
                fix="start again from the branch's present head",
            )

    def _merged(self, repository: str, source: str, branch: str, row: BranchRow) -> BuiltTree:
        theirs = self._refs.commit(repository, source)
        ours = self._refs.commit(repository, row.head)
        base = self._refs.common_ancestor(repository, ours, theirs)
        if base is not None and base.tree == ours.tree:  # nothing of ours to keep
            return self._trees.built(theirs.tree)
        base_tree = trees.EMPTY.id if base is None else base.tree
        our_tree = self._trees.tree(ours.tree)
        merged = trees.merge(
            self._trees.tree(base_tree), our_tree, self._trees.tree(theirs.tree), self._trees.load
        )
        if merged.conflicts:
            raise StoreRefusedError(
                f"{source} and branch {branch!r} changed the same objects in different ways: "
                f"{_named(merged.conflicts)}",
                fix="start again from the branch's present head",
            )
        return trees.apply(our_tree, merged.changes, self._trees.load)

    def _advance(
        self,
        connection: sqlite3.Connection,
        repository: str,
        row: BranchRow,
        built: BuiltTree,
        *,
        message: str,
        metadata: Mapping[str, str],
    ) -> Commit:
        """Write a new commit on top of the branch's head and move the branch to it."""
        self._trees.insert(connection, built)
        commit = insert_commit(
            connection,
            repository,
            (row.head,),
            built.id,
            message=message,
            metadata=metadata,
            created_us=self._now_us(),
        )
        connection.execute("UPDATE branches SET head = ? WHERE id = ?", (commit.id, row.id))
        return commit

    def _release(self, connection: sqlite3.Connection, commit: str) -> None:
        """Record when the commit stopped being a branch's head: gc counts its age from then."""
        connection.execute(
            "UPDATE commits SET released_us = ? WHERE id = ?", (self._now_us(), commit)
        )


def _object_entry(entry: Entry | None) -> ObjectEntry | None:
    return None if entry is None else ObjectEntry(entry[0], entry[2], entry[1])


def _named(keys: Sequence[str]) -> str:
    more = ", …" if len(keys) >= _NAMED_CONFLICTS else ""
    return ", ".join(repr(key) for key in keys[:_NAMED_CONFLICTS]) + more
