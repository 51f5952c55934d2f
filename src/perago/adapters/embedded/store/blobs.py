"""Stored bytes: one read-only file per distinct content, named by its sha256.

:class:`Blobs` finds, reads and checks them; :class:`BlobWriter` adds new ones. Paths are plain
strings: a ``Path`` for every object would cost as much as the object.
"""

# ruff: noqa: PTH101, PTH103, PTH104, PTH108, PTH116, PTH120, PTH208

from __future__ import annotations

import hashlib
import io
import itertools
import os
import re
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

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
from perago.errors import CorruptObjectError, StoreUnavailableError, WorkspaceError
from perago.file_lock import try_lock
from perago.model.workspace import FetchedFile, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _typeshed import WriteableBuffer

    from perago.adapters.local_io.file_copy import OnBytes
    from perago.model.commit import ObjectEntry
    from perago.model.workspace import Upload


DOWNLOAD_THREADS = 2  # one copies while the other hashes
UPLOAD_THREADS = 4  # they wait for fsync, and a filesystem answers several waits at once
GC_SECONDS = 600.0
"""How long a writer waits for a garbage collection to end."""

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HEX_PAIR = re.compile(r"[0-9a-f]{2}")
_HEX_REST = re.compile(r"[0-9a-f]{62}")


class Blobs:
    """The content-addressed files below a store's root."""

    def __init__(self, root: Path, *, durable: bool) -> None:
        self.objects = str(root / "objects")
        self.incoming = str(root / "tmp")
        self._lock = str(root / "lock")
        self.durable = durable
        for directory in (self.objects, self.incoming):
            try:
                os.makedirs(directory, exist_ok=True)
            except OSError as error:
                raise write_error(directory, error) from error

    def path_of(self, sha256: str) -> str:
        """The path of the object with that hash, stored or not."""
        return f"{self.objects}/{sha256[:2]}/{sha256[2:]}"

    @contextmanager
    def locked(
        self, purpose: str, *, shared: bool, wait_seconds: float = GC_SECONDS
    ) -> Iterator[None]:
        """Hold the store's lock: shared for writers, exclusive for garbage collection.

        Raises StoreUnavailableError if it is not free within ``wait_seconds``.
        """
        try:
            descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise write_error(self._lock, error) from error
        try:
            if not try_lock(descriptor, shared=shared, timeout=wait_seconds):
                holder = "garbage collection is running" if shared else "uploads are running"
                raise StoreUnavailableError(
                    f"{purpose} waited {wait_seconds:g} s for {self._lock!r}: {holder}",
                    fix="try again when that has ended",
                )
            yield
        finally:
            os.close(descriptor)

    def has_sound(self, sha256: str, size: int) -> bool:
        """Whether the object's file exists and its bytes have this hash and size."""
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
        """The sha256 and size of every object file, referenced or not.

        Files whose names are no hashes are not ours and are left out.
        """
        for directory in sorted(filter(_HEX_PAIR.fullmatch, os.listdir(self.objects))):
            with os.scandir(f"{self.objects}/{directory}") as files:
                for file in files:
                    if _HEX_REST.fullmatch(file.name):
                        yield directory + file.name, file.stat().st_size

    def leftovers(self) -> list[str]:
        """Temporary files of writers, alive or dead."""
        return [f"{self.incoming}/{name}" for name in os.listdir(self.incoming)]

    def fetch(self, entry: ObjectEntry, path: str, on_bytes: OnBytes) -> FetchedFile:
        """Copy an object to the new file ``path``; its signature is taken after the last byte.

        Raises CorruptObjectError, and leaves no file, if the bytes don't match the object's hash.
        """
        source = self.open_file(entry.key, entry.checksum)
        try:
            target = _create(path)
            try:
                size, sha256 = copy_hashing(source, target, entry.size, on_bytes)
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
        """Make ``path`` a hard link to an object's file, or a copy where links don't work.

        Both are read-only; a link's bytes are not checked. Raises CorruptObjectError if the file is
        missing or has the wrong size.
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

    def open(self, key: str, sha256: str) -> BinaryIO:
        """An object's bytes as a stream; its end raises CorruptObjectError if the hash differs."""
        raw = _VerifiedBytes(self.open_file(key, sha256), key, sha256)
        return cast("BinaryIO", io.BufferedReader(raw, CHUNK))

    def open_file(self, key: str, sha256: str) -> int:
        """Open an object's file unchecked. Raises CorruptObjectError if it is missing."""
        try:
            return os.open(self.path_of(sha256), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise corrupt(key, sha256, "its file is missing") from None


def corrupt(key: str, sha256: str, how: str) -> CorruptObjectError:
    """The error for a stored object whose bytes are not what its name says."""
    return CorruptObjectError(
        f"object {key!r} ({sha256}) in the store is damaged: {how}",
        fix="run `perago verify` to see all the damage, then `perago import` good copies of the "
        "files (their bytes replace the damaged ones), or restore that object from a backup",
    )


def _create(path: str) -> int:
    try:
        return os.open(path, _CREATE, 0o666)
    except FileExistsError:
        raise WorkspaceError(
            f"{path!r} exists already: objects are only written to new files",
            fix="download into an empty directory",
        ) from None


class _VerifiedBytes(io.RawIOBase):
    """A file that is read once, from its start, and checked when its end is reached."""

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


class BlobWriter:
    """Adds objects, from any thread. :meth:`finish` must be called before anything refers to them.

    The caller holds the shared lock from before the first byte until the rows that refer to
    the objects are committed: until then garbage collection would remove them.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._names = map(f"{blobs.incoming}/{secrets.token_hex(8)}-{{}}".format, itertools.count())
        self._seen: dict[str, object] = {}
        self._new: list[int] = []

    @property
    def new_objects(self) -> int:
        """How many of the objects were missing from the store, or damaged there."""
        return len(self._new)

    @property
    def new_bytes(self) -> int:
        """The size of those objects."""
        return sum(self._new)

    def add_file(self, upload: Upload, on_bytes: OnBytes) -> tuple[str, int]:
        """Store a file's bytes; return their sha256 and size.

        Raises WorkspaceChangedError if the file is not, or does not stay, the one with the given
        signature, and UnsupportedFileError if it can't be read as a file.
        """
        source = open_source(upload)
        try:
            check_signature(upload, source)
            if upload.signature.size > CHUNK:
                add = self._add_spare if upload.spare else self._add_large
                return add(upload, source, on_bytes)
            data = read_whole(source, upload.signature.size)
            check_signature(upload, source)
        finally:
            os.close(source)
        on_bytes(len(data))
        return self.add_bytes(data)

    def add_bytes(self, data: bytes) -> tuple[str, int]:
        """Store bytes from memory; return their sha256 and size."""
        sha256 = hashlib.sha256(data).hexdigest()
        if self._needs(sha256, len(data)):
            with self._incoming() as (name, target):
                write_all(target, data)
                self._place(name, target, sha256, len(data))
        return sha256, len(data)

    def finish(self) -> None:
        """Flush the names of all added objects to disk, also of those that existed before.

        Another writer may have renamed one into place without having flushed its name yet.
        """
        if self._blobs.durable:
            directories = {os.path.dirname(self._blobs.path_of(sha256)) for sha256 in self._seen}
            directories.add(self._blobs.objects)
            in_parallel(sorted(directories), sync_directory, threads=UPLOAD_THREADS)

    def _add_large(self, upload: Upload, source: int, on_bytes: OnBytes) -> tuple[str, int]:
        with self._incoming() as (name, target):
            size, sha256 = copy_hashing(source, target, upload.signature.size, on_bytes)
            check_signature(upload, source)
            if self._needs(sha256, size):
                self._place(name, target, sha256, size)
            else:
                os.unlink(name)
        return sha256, size

    def _add_spare(self, upload: Upload, source: int, on_bytes: OnBytes) -> tuple[str, int]:
        """Store the file itself by a hard link; only its hash is computed."""
        size, sha256 = hash_of(source, on_bytes)
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
                    upload, "another file has its name now"
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
        """Whether the bytes must be written: they are missing from the store, or damaged there.

        So good bytes repair the store. Trusting a damaged file would lose them.
        """
        mine = object()
        if self._seen.setdefault(sha256, mine) is not mine:
            return False  # another file of this upload has the same bytes
        return not self._blobs.has_sound(sha256, size)

    @contextmanager
    def _incoming(self) -> Iterator[tuple[str, int]]:
        """A new file that the block renames or unlinks; unlinked if the block raises."""
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
        self._new.append(size)
