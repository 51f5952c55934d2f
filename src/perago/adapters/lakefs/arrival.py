"""Files made of what comes from the server: whole ones at once, large ones part by part."""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perago.adapters.foundation.copying import write_all
from perago.adapters.foundation.disk import write_failure
from perago.errors import CorruptObjectError
from perago.model.changes import FetchedFile, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from obstore import Bytes

    from perago.model.changes import Download

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
        raise write_failure(path, error) from error


class Assembly:
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
        raise write_failure(path, error) from error
