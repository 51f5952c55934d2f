"""Files to objects on a branch: small ones in one request each, large ones in parts."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from perago.adapters.lakefs.checksums import WHOLE, etag_of_parts, md5, part_size
from perago.adapters.lakefs.client import Retries
from perago.adapters.lakefs.s3_client import asking
from perago.adapters.local_io.file_copy import check_signature, open_source, read_whole
from perago.adapters.local_io.parallel import in_parallel
from perago.errors import (
    PeragoError,
    StoreAccessError,
    StoreRefusedError,
    StoreUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from obstore.store import S3Store

    from perago.adapters.lakefs.client import LakeFSConfig
    from perago.adapters.local_io.parallel import Tally
    from perago.model.workspace import Upload


THREADS = 16
_LONGEST_KEY = 1024
_IN_FLIGHT = 64 << 20  # bytes of a large file that are on their way at a time


class Uploader:
    """One upload to one branch; ``patient`` is the connection for large files."""

    def __init__(
        self, config: LakeFSConfig, store: S3Store, patient: S3Store, branch: str, tally: Tally
    ) -> None:
        self._config = config
        self._store = store
        self._patient = patient
        self._branch = branch
        self._tally = tally
        self._retries = Retries()

    def run(self, files: Sequence[Upload]) -> None:
        """All of them, or an error; before any is sent, each has been found to be as checked."""
        in_parallel(files, _check, threads=THREADS)
        in_parallel(
            [upload for upload in files if upload.signature.size <= WHOLE],
            self._send_whole,
            threads=THREADS,
        )
        for upload in files:
            if upload.signature.size > WHOLE:
                self._send_in_parts(upload)

    def _send_whole(self, upload: Upload) -> None:
        import obstore

        data = _read(upload)
        expected = md5(data)

        def send() -> None:
            with self._asking(upload):
                answer = obstore.put(self._store, self._name(upload), data, use_multipart=False)
            if _plain(answer["e_tag"]) != expected:  # for these, lakeFS itself hashes what it gets
                got = _plain(answer["e_tag"])
                raise _other_bytes(upload, f"their ETag is {got!r}, not {expected!r}")

        self._retries.call(send)
        self._tally.add(1, len(data))

    def _send_in_parts(self, upload: Upload) -> None:
        size = part_size(upload.signature.size)

        def send() -> None:
            parts = _Parts(upload, size, self._tally)
            try:
                etag = self._put(upload, parts, size)
            except BaseException:
                self._tally.add_bytes(-parts.told)
                if parts.problem is not None:  # obstore only says that there was one
                    raise parts.problem from None
                raise
            if _plain(etag) != etag_of_parts(parts.md5s):
                self._read_back(upload, parts.md5s, size)

        self._retries.call(send)
        self._tally.add_object()

    def _put(self, upload: Upload, parts: _Parts, size: int) -> str | None:
        """The ETag of what is there now."""
        import obstore

        name = self._name(upload)
        try:
            with self._asking(upload):
                return obstore.put(
                    self._patient,
                    name,
                    iter(parts),
                    use_multipart=True,
                    chunk_size=size,
                    max_concurrency=max(1, _IN_FLIGHT // size),
                )["e_tag"]
        except StoreAccessError:
            raise
        except StoreRefusedError:
            if parts.problem is not None:
                raise
            # The request that completes an upload is repeated by obstore, and the second one is
            # refused where the first was applied: what is there tells.
            with self._asking(upload):
                return obstore.head(self._store, name)["e_tag"]

    def _read_back(self, upload: Upload, md5s: Sequence[bytes], size: int) -> None:
        """Compare what arrived part by part: a storage that encrypts has ETags that tell nothing.

        Raises StoreUnavailableError if it isn't what was sent.
        """
        import obstore

        def compare(number: int) -> None:
            start = number * size
            end = min(start + size, upload.signature.size)
            with self._asking(upload):
                found = obstore.get_range(self._store, self._name(upload), start=start, end=end)
            if hashlib.md5(found, usedforsecurity=False).digest() != md5s[number]:
                raise _other_bytes(upload, f"part {number + 1} of {len(md5s)} differs")

        in_parallel(range(len(md5s)), compare, threads=max(1, _IN_FLIGHT // size))

    def _asking(self, upload: Upload) -> AbstractContextManager[None]:
        return asking(f"putting {upload.key!r} on branch {self._branch!r}", self._config)

    def _name(self, upload: Upload) -> str:
        return f"{self._branch}/{upload.key}"


def _check(upload: Upload) -> None:
    if len(upload.key.encode()) > _LONGEST_KEY:  # the server would only say that it failed
        raise StoreRefusedError(
            f"lakeFS takes keys of up to {_LONGEST_KEY} bytes, and {upload.key!r} is longer",
            fix="give that file a shorter path",
        )
    source = open_source(upload)
    try:
        check_signature(upload, source)
    finally:
        os.close(source)


def _read(upload: Upload) -> bytes:
    source = open_source(upload)
    try:
        check_signature(upload, source)
        data = read_whole(source, upload.signature.size)
        check_signature(upload, source)
        return data
    finally:
        os.close(source)


class _Parts:
    """A large file's parts, to be drawn once; their md5s and what went wrong are kept.

    That the file has stayed as it was is checked before the last part is handed over, so that
    nothing is ever completed with bytes that weren't checked.
    """

    def __init__(self, upload: Upload, size: int, tally: Tally) -> None:
        self._upload = upload
        self._size = size
        self._tally = tally
        self.md5s: list[bytes] = []
        self.told = 0
        self.problem: PeragoError | None = None

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._read()
        except PeragoError as problem:
            self.problem = problem
            raise

    def _read(self) -> Iterator[bytes]:
        source = open_source(self._upload)
        try:
            left = self._upload.signature.size
            while left:
                part = _read_part(source, min(self._size, left))
                check_signature(self._upload, source)
                left -= len(part)
                self.md5s.append(hashlib.md5(part, usedforsecurity=False).digest())
                yield part
                self._tally.add_bytes(len(part))
                self.told += len(part)
        finally:
            os.close(source)


def _read_part(source: int, size: int) -> bytes:
    part = bytearray()
    while len(part) < size and (more := os.read(source, size - len(part))):
        part += more
    return bytes(part)


def _plain(etag: str | None) -> str:
    return (etag or "").strip('"')


def _other_bytes(upload: Upload, evidence: str) -> StoreUnavailableError:
    """Sending it again may help."""
    return StoreUnavailableError(
        f"putting {upload.key!r}: lakeFS got other bytes than were sent ({evidence})",
        fix="look for what changes them on the way, then try again",
    )
