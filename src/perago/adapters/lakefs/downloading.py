"""Objects to files: small ones in one request each, large ones in parts, all of them at once."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from perago.adapters.foundation.transfer import in_parallel
from perago.adapters.lakefs.arrival import Assembly, create_file
from perago.adapters.lakefs.checksums import WHOLE, hashed_by_server, matches, tells
from perago.adapters.lakefs.persistence import Persistence
from perago.adapters.lakefs.s3 import asking
from perago.errors import CorruptObjectError
from perago.model.changes import FetchedFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from obstore import Bytes
    from obstore.store import S3Store

    from perago.adapters.foundation.transfer import Tally
    from perago.adapters.lakefs.access import LakeFSAccess
    from perago.adapters.lakefs.cache.filling import Filling
    from perago.model.changes import Download
    from perago.model.commit import ObjectEntry

THREADS = 16
_PARTS_AT_ONCE = 4
_PART = 16 << 20
_PIECE = 256 << 10  # of a part; what fits the processor's own cache costs least to pass on


class Downloading:
    """One download of objects at one ref."""

    def __init__(
        self, access: LakeFSAccess, store: S3Store, ref: str, tally: Tally, filling: Filling | None
    ) -> None:
        self._access = access
        self._store = store
        self._ref = ref
        self._tally = tally
        self._filling = filling
        self._persistence = Persistence()

    def run(self, wanted: Sequence[Download]) -> list[FetchedFile]:
        """Each of them to its file. No file is left half written."""
        large = [Assembly(download, _PART) for download in wanted if download.entry.size > WHOLE]
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

        data = self._persistence.until_done(read)
        _assert_size(entry, len(data))
        return data

    # --- parts of large ones ----------------------------------------------------------------------

    def _fetch_part(self, part: tuple[Assembly, int]) -> FetchedFile | None:
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

        self._persistence.until_done(read)
        # Not all at the end: a process has fewer open files than a workspace may have large ones.
        return self._end(assembly) if assembly.end_part() else None

    def _end(self, assembly: Assembly) -> FetchedFile:
        file = assembly.end()
        if self._filling is not None:
            self._filling.add_file(assembly.download.entry, assembly.descriptor, file.sha256)
        assembly.close()
        self._tally.add_object()
        return file

    def _asking(self, entry: ObjectEntry) -> AbstractContextManager[None]:
        return asking(f"reading {entry.key!r} at {self._ref!r}", self._access)

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
