"""Bytes on their way into the store.

An object's file appears by a rename, after its bytes are on disk, so whoever finds it finds all
of it; and its name is on disk before anything in the database can refer to it.
"""

# File names are plain strings here: a Path for each would cost more than its system calls.
# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH120, PTH200

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perago.adapters.foundation.copying import (
    CHUNK,
    copy_hashing,
    hash_of,
    read_whole,
    write_all,
)
from perago.adapters.foundation.disk import sync_directory, write_failure
from perago.adapters.foundation.sources import changed, check_signature, open_source
from perago.adapters.foundation.transfer import in_parallel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perago.adapters.embedded.store.blobs import Blobs
    from perago.adapters.foundation.copying import Moved
    from perago.model.changes import Upload

UPLOAD_THREADS = 4  # they wait for fsync, and the filesystem answers several waits at once

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Intake:
    """One writer's incoming bytes, from any of its threads. :meth:`finish` comes before any name.

    The caller holds the store's shared lock from before the first byte until what names the
    objects is committed: until then, to a sweep, they are garbage.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._names = map(f"{blobs.incoming}/{secrets.token_hex(8)}-{{}}".format, itertools.count())
        self._seen: dict[str, object] = {}
        self._moved: list[int] = []

    @property
    def moved_objects(self) -> int:
        """How many of the objects the store didn't have yet, or only damaged."""
        return len(self._moved)

    @property
    def moved_bytes(self) -> int:
        """The size of those objects."""
        return sum(self._moved)

    def add_file(self, upload: Upload, moved: Moved) -> tuple[str, int]:
        """Store a file's bytes; returns their sha256 and size.

        Raises :class:`WorkspaceChangedError` if it isn't, or doesn't stay, the file whose
        signature was given, and :class:`UnsupportedFileError` if it can't be read as a file.
        """
        source = open_source(upload)
        try:
            check_signature(upload, source)
            if upload.signature.size > CHUNK:
                add = self._add_spare if upload.spare else self._add_large
                return add(upload, source, moved)
            data = read_whole(source, upload.signature.size)
            check_signature(upload, source)
        finally:
            os.close(source)
        moved(len(data))
        return self.add_bytes(data)

    def add_bytes(self, data: bytes) -> tuple[str, int]:
        """Store bytes that are in memory already; returns their sha256 and size."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self._needs(sha256, len(data)):
            with self._incoming() as (name, target):
                write_all(target, data)
                self._place(name, target, sha256, len(data))
        return sha256, len(data)

    def finish(self) -> None:
        """Put the names of everything added on disk, also of what was there before.

        Another writer may have renamed it into place and not have come to this point yet.
        """
        if self._blobs.durable:
            directories = {os.path.dirname(self._blobs.path_of(sha256)) for sha256 in self._seen}
            directories.add(self._blobs.objects)
            in_parallel(sorted(directories), sync_directory, threads=UPLOAD_THREADS)

    def _add_large(self, upload: Upload, source: int, moved: Moved) -> tuple[str, int]:
        with self._incoming() as (name, target):
            size, sha256 = copy_hashing(source, target, upload.signature.size, moved)
            check_signature(upload, source)
            if self._needs(sha256, size):
                self._place(name, target, sha256, size)
            else:
                os.unlink(name)
        return sha256, size

    def _add_spare(self, upload: Upload, source: int, moved: Moved) -> tuple[str, int]:
        """Take in the file itself, by another name; only its hash costs anything."""
        size, sha256 = hash_of(source, moved)
        check_signature(upload, source)
        if not self._needs(sha256, size):
            return sha256, size
        name = next(self._names)
        try:
            os.link(upload.path, name, follow_symlinks=False)
        except OSError:  # another filesystem, or one without links
            del self._seen[sha256]
            return self._add_large(upload, source, lambda _count: None)
        try:
            if os.stat(name).st_ino != upload.signature.inode:
                raise changed(  # noqa: TRY301 - the cleanup below is for this error too
                    upload, "another file has taken its name"
                )
            os.fchmod(source, 0o444)
            self._place(name, source, sha256, size)
        except BaseException as error:
            os.unlink(name)
            if isinstance(error, OSError):
                raise write_failure(name, error) from error
            raise
        return sha256, size

    def _needs(self, sha256: str, size: int) -> bool:
        """Whether the bytes are to be written: the store hasn't got them, or only damaged.

        Whoever brings good bytes heals the store. Believing a damaged file would lose them.
        """
        mine = object()
        if self._seen.setdefault(sha256, mine) is not mine:
            return False  # another file of this upload has, or had, the same bytes
        return not self._blobs.has_sound(sha256, size)

    @contextmanager
    def _incoming(self) -> Iterator[tuple[str, int]]:
        """A new file, to be renamed or unlinked in the block; unlinked if that raises."""
        name = next(self._names)
        try:
            target = os.open(name, _CREATE, 0o444)
            try:
                yield name, target
            except BaseException:
                os.unlink(name)
                raise
            finally:
                os.close(target)
        except OSError as error:
            raise write_failure(name, error) from error

    def _place(self, name: str, target: int, sha256: str, size: int) -> None:
        if self._blobs.durable:
            os.fsync(target)
        path = self._blobs.path_of(sha256)
        try:
            os.rename(name, path)
        except FileNotFoundError:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(name, path)
        self._moved.append(size)
