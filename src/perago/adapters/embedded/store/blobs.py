"""Stored bytes: one read-only file per distinct content, named by its sha256, hashed when read."""

# ruff: noqa: PTH101, PTH103, PTH108, PTH116, PTH208
# ruff: noqa: PTH103, PTH104, PTH108, PTH116, PTH120, PTH200

from __future__ import annotations

import hashlib
import io
import itertools
import os
import re
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from perago.adapters.embedded.store.parallel_copy import deliver_all
from perago.adapters.local_io.file_copy import (
    CHUNK,
    changed_error,
    check_signature,
    copy_hashing,
    hash_of,
    open_source,
    read_whole,
    sync_directory,
    write_all,
    write_error,
)
from perago.adapters.local_io.parallel import in_parallel
from perago.errors import CorruptObjectError, WorkspaceError
from perago.model.workspace import FetchedFile, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from _typeshed import WriteableBuffer

    from perago.adapters.embedded.store.courier import Stamp
    from perago.adapters.local_io.file_copy import OnBytes
    from perago.adapters.local_io.parallel import Tally
    from perago.model.commit import ObjectEntry
    from perago.model.workspace import Download, Upload


DOWNLOAD_THREADS = 2  # for large objects, whose copying and hashing run side by side
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HEX_PAIR = re.compile(r"[0-9a-f]{2}")
_HEX_REST = re.compile(r"[0-9a-f]{62}")


class Blobs:
    """The content-addressed files below a store's root."""

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.objects = str(root / "objects")
        self.incoming = str(root / "tmp")
        self.durable = durable
        for directory in (self.objects, self.incoming):
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise write_error(directory, error) from error

    def path_of(self, sha256: str) -> str:
        """Where the object of that hash is, or would be."""
        return f"{self.objects}/{sha256[:2]}/{sha256[2:]}"

    def has_sound(self, sha256: str, size: int) -> bool:
        """Whether the object's file is there and, read again, holds what its name says."""
        try:
            source = os.open(self.path_of(sha256), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return os.fstat(source).st_size == size and hash_of(source) == (size, sha256)
        except OSError:
            return False
        finally:
            os.close(source)

    def stored(self) -> Iterator[tuple[str, int]]:
        """The sha256 and size of every object file there is, referenced or not.

        A file that can't be an object is somebody else's, and is left out.
        """
        for directory in sorted(filter(_HEX_PAIR.fullmatch, os.listdir(self.objects))):
            with os.scandir(f"{self.objects}/{directory}") as files:
                for file in files:
                    if _HEX_REST.fullmatch(file.name):
                        yield directory + file.name, file.stat().st_size

    def leftovers(self) -> list[str]:
        """Files of writers that are at work, or died."""
        return [f"{self.incoming}/{name}" for name in os.listdir(self.incoming)]

    def fetch(self, entry: ObjectEntry, path: str, moved: OnBytes) -> FetchedFile:
        """Write an object to the new file ``path``, with a stat taken after its last byte.

        Raises :class:`CorruptObjectError` and leaves no file if the bytes aren't the stored ones.
        """
        source = self.open_file(entry.key, entry.checksum)
        try:
            target = _create(path)
            try:
                size, sha256 = copy_hashing(source, target, entry.size, moved)
                if sha256 != entry.checksum or size != entry.size:
                    raise corrupt(  # noqa: TRY301 - the cleanup below is for this error too
                        entry.key, entry.checksum, f"its {size} bytes hash to {sha256}"
                    )
                signature = Signature.of(os.fstat(target))
            except BaseException:
                os.unlink(path)
                raise
            finally:
                os.close(target)
        except OSError as error:
            raise write_error(path, error) from error
        finally:
            os.close(source)
        return FetchedFile(entry.key, sha256, signature)

    def link(self, entry: ObjectEntry, path: str) -> None:
        """Give an object's own file a second name, ``path``; a copy where that can't be.

        Neither can be written, and the bytes aren't read. Raises CorruptObjectError if the file is
        missing or isn't as long as it should be.
        """
        own = self.path_of(entry.checksum)
        try:
            size = os.stat(own).st_size
        except FileNotFoundError:
            raise corrupt(entry.key, entry.checksum, "its file is missing") from None
        if size != entry.size:
            raise corrupt(entry.key, entry.checksum, f"it has {size} of {entry.size} bytes")
        try:
            os.link(own, path)
        except OSError:  # another filesystem, one without links, or too many of them
            self.fetch(entry, path, lambda _count: None)
            os.chmod(path, 0o444)

    def deliver_small(
        self, wanted: Sequence[Download], tally: Tally
    ) -> tuple[list[FetchedFile], list[Download]]:
        """Write the small objects among many to their new files, as :meth:`fetch` would.

        Returns what is done and what is left: the large ones, and those that went wrong, which
        :meth:`fetch` has to tell about.
        """
        small = [item for item in wanted if item.entry.size <= CHUNK]
        left = [item for item in wanted if item.entry.size > CHUNK]
        jobs = [
            (
                self.path_of(item.entry.checksum),
                os.fspath(item.path),
                item.entry.size,
                item.entry.checksum,
            )
            for item in small
        ]
        done: list[FetchedFile] = []

        def arrived(number: int, stamp: Stamp) -> None:
            entry = small[number].entry
            done.append(FetchedFile(entry.key, entry.checksum, Signature(entry.size, *stamp)))
            tally.add(1, entry.size)

        left += [small[number] for number in deliver_all(jobs, arrived)]
        return done, left

    def open(self, key: str, sha256: str) -> BinaryIO:
        """An object's bytes as a stream, which raises at its end if they aren't the stored ones."""
        raw = _VerifiedBytes(self.open_file(key, sha256), key, sha256)
        return cast("BinaryIO", io.BufferedReader(raw, CHUNK))

    def open_file(self, key: str, sha256: str) -> int:
        """A descriptor of an object's file; its bytes are not checked."""
        try:
            return os.open(self.path_of(sha256), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise corrupt(key, sha256, "its file is missing") from None


def corrupt(key: str, sha256: str, finding: str) -> CorruptObjectError:
    """The error for a stored object that isn't what its name says."""
    return CorruptObjectError(
        f"object {key!r} ({sha256}) in the store is damaged: {finding}",
        fix="run `perago verify` to see all the damage, then `perago import` good copies of the "
        "files (their bytes replace the damaged ones), or restore that object from a backup",
    )


def _create(path: str) -> int:
    try:
        return os.open(path, _CREATE, 0o666)
    except FileExistsError:
        raise WorkspaceError(
            f"{path!r} exists already: an object is only ever written to a new file",
            fix="download into an empty directory",
        ) from None


class _VerifiedBytes(io.RawIOBase):
    """A file read once, from its start, and judged when its end is reached."""

    def __init__(self, source: int, key: str, sha256: str) -> None:
        self._source = source
        self._key = key
        self._sha256 = sha256
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        count = os.readv(self._source, [buffer])
        if count:
            self._digest.update(memoryview(buffer)[:count])
        elif self._digest.hexdigest() != self._sha256:
            raise corrupt(self._key, self._sha256, f"its bytes hash to {self._digest.hexdigest()}")
        return count

    def close(self) -> None:
        if not self.closed:
            os.close(self._source)
        super().close()


# --- Bytes on their way into the store ---
UPLOAD_THREADS = 4  # they wait for fsync, and the filesystem answers several waits at once
_CREATE_STAGED = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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

    def add_file(self, upload: Upload, moved: OnBytes) -> tuple[str, int]:
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

    def _add_large(self, upload: Upload, source: int, moved: OnBytes) -> tuple[str, int]:
        with self._incoming() as (name, target):
            size, sha256 = copy_hashing(source, target, upload.signature.size, moved)
            check_signature(upload, source)
            if self._needs(sha256, size):
                self._place(name, target, sha256, size)
            else:
                os.unlink(name)
        return sha256, size

    def _add_spare(self, upload: Upload, source: int, moved: OnBytes) -> tuple[str, int]:
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
                raise changed_error(  # noqa: TRY301 - the cleanup below is for this error too
                    upload, "another file has taken its name"
                )
            os.fchmod(source, 0o444)
            self._place(name, source, sha256, size)
        except BaseException as error:
            os.unlink(name)
            if isinstance(error, OSError):
                raise write_error(name, error) from error
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
            target = os.open(name, _CREATE_STAGED, 0o444)
            try:
                yield name, target
            except BaseException:
                os.unlink(name)
                raise
            finally:
                os.close(target)
        except OSError as error:
            raise write_error(name, error) from error

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
