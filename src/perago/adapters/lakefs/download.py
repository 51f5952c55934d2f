"""Downloads of objects to files: small ones in one request each, large ones in parallel parts."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perago.adapters.lakefs.checksums import WHOLE, hashed_by_server, is_verifiable, matches
from perago.adapters.lakefs.client import Retries
from perago.adapters.lakefs.s3_client import translated_errors
from perago.adapters.local_io.file_copy import write_all, write_error
from perago.adapters.local_io.parallel import in_parallel
from perago.errors import CorruptObjectError
from perago.model.workspace import FetchedFile, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from obstore import Bytes
    from obstore.store import S3Store

    from perago.adapters.lakefs.cache.packs import CacheWriter
    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.adapters.local_io.parallel import Tally
    from perago.model.commit import ObjectEntry
    from perago.model.workspace import Download


_THREADS = 16
_PART_THREADS = 4
_PART_BYTES = 16 << 20
_PIECE_BYTES = 256 << 10  # of a part, so that it fits the processor's cache
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Downloader:
    """One download of objects at one ref; ``writer`` puts them into the cache."""

    def __init__(
        self,
        config: LakeFSConfig,
        store: S3Store,
        ref: str,
        tally: Tally,
        writer: CacheWriter | None,
    ) -> None:
        self._config = config
        self._store = store
        self._ref = ref
        self._tally = tally
        self._writer = writer
        self._retries = Retries()

    def run(self, wanted: Sequence[Download]) -> list[FetchedFile]:
        """Download each object to its file. Leaves no file half written."""
        large = [
            _FileAssembly(download, _PART_BYTES)
            for download in wanted
            if download.entry.size > WHOLE
        ]
        small = [download for download in wanted if download.entry.size <= WHOLE]
        parts = [(assembly, start) for assembly in large for start in assembly.part_starts]
        try:
            completed = in_parallel(parts, self._fetch_part, threads=_PART_THREADS)
            files = in_parallel(small, self._fetch_whole, threads=_THREADS)
            return files + [file for file in completed if file is not None]
        finally:
            for assembly in large:
                assembly.close()

    def _fetch_whole(self, download: Download) -> FetchedFile:
        entry = download.entry
        data = self._verified(entry)
        sha256 = hashlib.sha256(data).hexdigest()
        signature = create_file(download.path, data)
        if self._writer is not None:
            self._writer.add(entry, data, sha256)
        self._tally.add(1, entry.size)
        return FetchedFile(entry.key, sha256, signature)

    def _verified(self, entry: ObjectEntry) -> Bytes:
        data = self._read(entry)
        if not is_verifiable(entry) or matches(entry, data):
            return data
        # The bytes may have been damaged only on their way here.
        again = self._read(entry)
        if matches(entry, again):
            return again
        if hashed_by_server(entry) or bytes(data) != bytes(again):
            raise _corrupt(entry, f"the md5 isn't {entry.checksum}")
        return again  # read twice the same: the storage's checksum is no md5

    def _read(self, entry: ObjectEntry) -> Bytes:
        import obstore

        def read() -> Bytes:
            with self._translated_errors(entry):
                return obstore.get(self._store, self._name(entry)).bytes()

        data = self._retries.call(read)
        _assert_size(entry, len(data))
        return data

    def _fetch_part(self, part: tuple[_FileAssembly, int]) -> FetchedFile | None:
        """Download a part; return the file if this part completes it."""
        import obstore

        assembly, start = part
        entry, end = assembly.download.entry, assembly.part_end(start)
        position = start

        def read() -> None:  # a retry continues at the last position
            nonlocal position
            with self._translated_errors(entry):
                found = obstore.get(
                    self._store, self._name(entry), options={"range": (position, end)}
                )
                _assert_size(entry, found.meta["size"])
                for piece in found.stream(min_chunk_size=_PIECE_BYTES):
                    assembly.add(start, position, piece)
                    position += len(piece)
                    self._tally.add_bytes(len(piece))

        self._retries.call(read)
        # Closed one by one: a workspace may have more large files than a process may open.
        return self._complete(assembly) if assembly.end_part() else None

    def _complete(self, assembly: _FileAssembly) -> FetchedFile:
        file = assembly.complete()
        if self._writer is not None:
            self._writer.add_file(assembly.download.entry, assembly.file_descriptor(), file.sha256)
        assembly.close()
        self._tally.add_object()
        return file

    def _translated_errors(self, entry: ObjectEntry) -> AbstractContextManager[None]:
        return translated_errors(f"downloading {entry.key!r} at {self._ref!r}", self._config)

    def _name(self, entry: ObjectEntry) -> str:
        return f"{self._ref}/{entry.key}"


def _assert_size(entry: ObjectEntry, size: int) -> None:
    if size != entry.size:
        raise _corrupt(entry, f"{size} bytes instead of {entry.size}")


def _corrupt(entry: ObjectEntry, evidence: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"object {entry.key!r}: its bytes aren't those that were stored: {evidence}",
        fix="upload a good copy of the object to the branch, then start from the new commit",
    )


class _FileAssembly:
    """A new file that several threads write, each one part from its start to its end.

    The threads also hash the bytes in the file's order, usually while these are still in memory.
    Closing an incomplete file removes it.
    """

    def __init__(self, download: Download, part_bytes: int) -> None:
        self.download = download
        self._part_bytes = part_bytes
        self._parts_missing = len(self.part_starts)
        self._lock = threading.Lock()
        self._descriptor: int | None = None
        self._is_complete = False
        self._hash_lock = threading.Lock()
        self._sha256 = hashlib.sha256()
        self._hashed = 0
        self._reached: dict[int, int] = {}

    @property
    def part_starts(self) -> range:
        return range(0, self.download.entry.size, self._part_bytes)

    def part_end(self, start: int) -> int:
        return min(start + self._part_bytes, self.download.entry.size)

    def file_descriptor(self) -> int:
        """The open file; the first call creates it."""
        with self._lock:
            if self._descriptor is None:
                self._descriptor = os.open(self.download.path, _CREATE, 0o666)
            return self._descriptor

    def add(self, part: int, position: int, data: bytes) -> None:
        """Write the next bytes of the part that starts at ``part``."""
        with _write_errors(self.download.path):
            written = os.pwrite(self.file_descriptor(), data, position)
            while written < len(data):
                written += os.pwrite(self.file_descriptor(), data[written:], position + written)
        if not self._hash_now(position, data):
            self._reached[part] = position + len(data)

    def _hash_now(self, position: int, data: bytes) -> bool:
        """Hash these bytes if they are next in the file, to save reading them again."""
        if not self._hash_lock.acquire(blocking=False):
            return False
        try:
            if position != self._hashed:
                return False
            self._sha256.update(data)
            self._hashed += len(data)
            return True
        finally:
            self._hash_lock.release()

    def _hash_written(self) -> None:
        """Hash the bytes written so far; if another thread is hashing, it hashes them."""
        if not self._hash_lock.acquire(blocking=False):
            return
        try:
            buffer = memoryview(bytearray(_PIECE_BYTES))
            with _write_errors(self.download.path):
                while (ready := self._ready()) > self._hashed:
                    piece = buffer[: ready - self._hashed]
                    count = os.preadv(self.file_descriptor(), [piece], self._hashed)
                    self._sha256.update(piece[:count])
                    self._hashed += count
        finally:
            self._hash_lock.release()

    def _ready(self) -> int:
        """The position up to which the part that is being hashed is written."""
        part = self._hashed - self._hashed % self._part_bytes
        return self._reached.get(part, 0)

    def end_part(self) -> bool:
        """Count a part as complete; return whether all are."""
        self._hash_written()
        with self._lock:
            self._parts_missing -= 1
            return self._parts_missing == 0

    def complete(self) -> FetchedFile:
        """The finished file; called once, after the last part."""
        self._hash_written()
        size = self.download.entry.size
        if self._hashed != size:
            key = self.download.entry.key
            raise CorruptObjectError(
                f"object {key!r}: only {self._hashed} of its {size} bytes arrived",
                fix="retry; if it happens again, look into lakeFS's log",
            )
        with _write_errors(self.download.path):
            signature = Signature.of(os.fstat(self.file_descriptor()))
        self._is_complete = True
        return FetchedFile(self.download.entry.key, self._sha256.hexdigest(), signature)

    def close(self) -> None:
        if self._descriptor is None:
            return
        os.close(self._descriptor)
        self._descriptor = None
        if not self._is_complete:
            Path(self.download.path).unlink(missing_ok=True)


@contextmanager
def _write_errors(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def create_file(path: str | Path, data: bytes | memoryview | Bytes) -> Signature:
    """Create a file with these bytes, or none. Raises StoreError if the disk fails."""
    with new_file(path) as descriptor:
        write_all(descriptor, memoryview(data))
        return Signature.of(os.fstat(descriptor))


@contextmanager
def new_file(path: str | Path) -> Iterator[int]:
    """Create a file to write to; it is removed if the block fails. Raises StoreError."""
    with _write_errors(path):
        descriptor = os.open(path, _CREATE, 0o666)
        try:
            yield descriptor
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
