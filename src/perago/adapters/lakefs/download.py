"""Objects to files: small ones in one request each, large ones in parts, all of them at once."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perago.adapters.lakefs.checksums import WHOLE, hashed_by_server, matches, tells
from perago.adapters.lakefs.client import Retries
from perago.adapters.lakefs.s3_client import asking
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


# --- Files made of what comes from the server: whole ones at once, large ones part by part ---
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HASHED_AT_A_TIME = 256 << 10  # what fits the processor's own cache


def create_file(path: str | Path, data: bytes | memoryview | Bytes) -> Signature:
    """A new file with these bytes, or none at all. Raises what the disk refuses."""
    with new_file(path) as descriptor:
        write_all(descriptor, memoryview(data))
        return Signature.of(os.fstat(descriptor))


@contextmanager
def new_file(path: str | Path) -> Iterator[int]:
    """A new file to write to, which is removed again if the block fails."""
    try:
        descriptor = os.open(path, _CREATE, 0o666)
        try:
            yield descriptor
        except BaseException:
            Path(path).unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
    except OSError as error:
        raise write_error(path, error) from error


class FileAssembly:
    """A new file whose parts come at the same time, each from its start to its end.

    Its bytes are hashed in their own order, by whoever has just brought some: from what the system
    has been given to write a moment ago. Unless it was ended it is removed when it is closed.
    """

    def __init__(self, download: Download, part_bytes: int) -> None:
        self.download = download
        self._part_bytes = part_bytes
        self._parts_missing = len(self.part_starts)
        self._guard = threading.Lock()
        self._descriptor: int | None = None
        self._ended = False
        self._hashing = threading.Lock()
        self._sha256 = hashlib.sha256()
        self._hashed = 0
        self._reached: dict[int, int] = {}

    @property
    def part_starts(self) -> range:
        return range(0, self.download.entry.size, self._part_bytes)

    def part_end(self, start: int) -> int:
        return min(start + self._part_bytes, self.download.entry.size)

    @property
    def descriptor(self) -> int:
        """The open file; made when it is first asked for."""
        with self._guard:
            if self._descriptor is None:
                self._descriptor = os.open(self.download.path, _CREATE, 0o666)
            return self._descriptor

    def add(self, part: int, position: int, data: bytes) -> None:
        """The next bytes of the part that starts at ``part``."""
        with _disk(self.download.path):
            written = os.pwrite(self.descriptor, data, position)
            while written < len(data):
                written += os.pwrite(self.descriptor, data[written:], position + written)
        if not self._hash_at_once(position, data):
            self._reached[part] = position + len(data)

    def _hash_at_once(self, position: int, data: bytes) -> bool:
        """Hash what has just come, if it is its turn: that saves reading it again."""
        if not self._hashing.acquire(blocking=False):
            return False
        try:
            if position != self._hashed:
                return False
            self._sha256.update(data)
            self._hashed += len(data)
            return True
        finally:
            self._hashing.release()

    def hash_on(self) -> None:
        """Hash what is there and hasn't been; somebody else who is at it does it for us."""
        if not self._hashing.acquire(blocking=False):
            return
        try:
            buffer = memoryview(bytearray(_HASHED_AT_A_TIME))
            with _disk(self.download.path):
                while (ready := self._ready()) > self._hashed:
                    piece = buffer[: ready - self._hashed]
                    count = os.preadv(self.descriptor, [piece], self._hashed)
                    self._sha256.update(piece[:count])
                    self._hashed += count
        finally:
            self._hashing.release()

    def _ready(self) -> int:
        """How far there is no gap, within the part that is being hashed."""
        part = self._hashed - self._hashed % self._part_bytes
        return self._reached.get(part, 0)

    def end_part(self) -> bool:
        """Another part is complete; whether all of them are now."""
        self.hash_on()
        with self._guard:
            self._parts_missing -= 1
            return self._parts_missing == 0

    def end(self) -> FetchedFile:
        """The file, once every part is complete: nobody else is at it any more."""
        self.hash_on()
        size = self.download.entry.size
        if self._hashed != size:
            raise CorruptObjectError(
                f"object {self.download.entry.key!r}: of its {size} bytes only {self._hashed} came",
                fix="try again; if it stays so, look into lakeFS's log",
            )
        with _disk(self.download.path):
            signature = Signature.of(os.fstat(self.descriptor))
        self._ended = True
        return FetchedFile(self.download.entry.key, self._sha256.hexdigest(), signature)

    def close(self) -> None:
        if self._descriptor is None:
            return
        os.close(self._descriptor)
        self._descriptor = None
        if not self._ended:
            Path(self.download.path).unlink(missing_ok=True)


@contextmanager
def _disk(path: str | Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


THREADS = 16
_PARTS_AT_ONCE = 4
_PART = 16 << 20
_PIECE = 256 << 10  # of a part; what fits the processor's own cache costs least to pass on


class Downloader:
    """One download of objects at one ref."""

    def __init__(
        self,
        config: LakeFSConfig,
        store: S3Store,
        ref: str,
        tally: Tally,
        filling: CacheWriter | None,
    ) -> None:
        self._config = config
        self._store = store
        self._ref = ref
        self._tally = tally
        self._filling = filling
        self._retries = Retries()

    def run(self, wanted: Sequence[Download]) -> list[FetchedFile]:
        """Each of them to its file. No file is left half written."""
        large = [
            FileAssembly(download, _PART) for download in wanted if download.entry.size > WHOLE
        ]
        small = [download for download in wanted if download.entry.size <= WHOLE]
        parts = [(assembly, start) for assembly in large for start in assembly.part_starts]
        try:
            ended = in_parallel(parts, self._fetch_part, threads=_PARTS_AT_ONCE)
            files = in_parallel(small, self._fetch_whole, threads=THREADS)
            return files + [file for file in ended if file is not None]
        finally:
            for assembly in large:
                assembly.close()

    # --- small objects -----------------------------------------------------------------------

    def _fetch_whole(self, download: Download) -> FetchedFile:
        entry = download.entry
        data = self._verified(entry)
        sha256 = hashlib.sha256(data).hexdigest()
        signature = create_file(download.path, data)
        if self._filling is not None:
            self._filling.add(entry, data, sha256)
        self._tally.add(1, entry.size)
        return FetchedFile(entry.key, sha256, signature)

    def _verified(self, entry: ObjectEntry) -> Bytes:
        data = self._read(entry)
        if not tells(entry) or matches(entry, data):
            return data
        # It may have been hurt on its way here only.
        again = self._read(entry)
        if matches(entry, again):
            return again
        if hashed_by_server(entry) or bytes(data) != bytes(again):
            raise _corrupt(entry, f"their md5 isn't {entry.checksum}")
        return again  # the storage's checksum isn't an md5, then

    def _read(self, entry: ObjectEntry) -> Bytes:
        import obstore

        def read() -> Bytes:
            with self._asking(entry):
                return obstore.get(self._store, self._name(entry)).bytes()

        data = self._retries.call(read)
        _assert_size(entry, len(data))
        return data

    # --- parts of large ones ----------------------------------------------------------------------

    def _fetch_part(self, part: tuple[FileAssembly, int]) -> FetchedFile | None:
        """The file, if this was the last part of it that was missing."""
        import obstore

        assembly, start = part
        entry, end = assembly.download.entry, assembly.part_end(start)
        position = start

        def read() -> None:  # and, if it was cut, read on
            nonlocal position
            with self._asking(entry):
                answer = obstore.get(
                    self._store, self._name(entry), options={"range": (position, end)}
                )
                _assert_size(entry, answer.meta["size"])
                for piece in answer.stream(min_chunk_size=_PIECE):
                    assembly.add(start, position, piece)
                    position += len(piece)
                    self._tally.add_bytes(len(piece))

        self._retries.call(read)
        # Not all at the end: a process has fewer open files than a workspace may have large ones.
        return self._end(assembly) if assembly.end_part() else None

    def _end(self, assembly: FileAssembly) -> FetchedFile:
        file = assembly.end()
        if self._filling is not None:
            self._filling.add_file(assembly.download.entry, assembly.descriptor, file.sha256)
        assembly.close()
        self._tally.add_object()
        return file

    def _asking(self, entry: ObjectEntry) -> AbstractContextManager[None]:
        return asking(f"reading {entry.key!r} at {self._ref!r}", self._config)

    def _name(self, entry: ObjectEntry) -> str:
        return f"{self._ref}/{entry.key}"


def _assert_size(entry: ObjectEntry, size: int) -> None:
    if size != entry.size:
        raise _corrupt(entry, f"there are {size} of them, not {entry.size}")


def _corrupt(entry: ObjectEntry, finding: str) -> CorruptObjectError:
    return CorruptObjectError(
        f"object {entry.key!r}: its bytes aren't the ones that were stored: {finding}",
        fix="put the object into the branch again from a good copy, then start from the new commit",
    )
