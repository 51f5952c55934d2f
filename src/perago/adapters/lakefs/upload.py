"""Uploads of files to a branch: small ones in one request each, large ones in parts."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from perago.adapters.lakefs.checksums import WHOLE, etag_of_parts, md5, part_size
from perago.adapters.lakefs.client import Retries
from perago.adapters.lakefs.s3_client import translated_errors
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


_THREADS = 16
_MAX_KEY_BYTES = 1024
_IN_FLIGHT_BYTES = 64 << 20  # of a large file, sent at the same time


class Uploader:
    """One upload to one branch; ``part_store`` is the client for large files."""

    def __init__(
        self, config: LakeFSConfig, store: S3Store, part_store: S3Store, branch: str, tally: Tally
    ) -> None:
        self._config = config
        self._store = store
        self._part_store = part_store
        self._branch = branch
        self._tally = tally
        self._retries = Retries()

    def run(self, files: Sequence[Upload]) -> None:
        """Upload all files or raise. First checks that none changed since the guardrails ran."""
        in_parallel(files, _check, threads=_THREADS)
        in_parallel(
            [upload for upload in files if upload.signature.size <= WHOLE],
            self._send_whole,
            threads=_THREADS,
        )
        for upload in files:
            if upload.signature.size > WHOLE:
                self._send_in_parts(upload)

    def _send_whole(self, upload: Upload) -> None:
        import obstore

        data = _read(upload)
        expected = md5(data)

        def send() -> None:
            with self._translated_errors(upload):
                found = obstore.put(self._store, self._name(upload), data, use_multipart=False)
            etag = _plain(found["e_tag"])
            if etag != expected:  # for these, lakeFS itself hashes the bytes that it receives
                raise _other_bytes(upload, f"their ETag is {etag!r}, not {expected!r}")

        self._retries.call(send)
        self._tally.add(1, len(data))

    def _send_in_parts(self, upload: Upload) -> None:
        size = part_size(upload.signature.size)

        def send() -> None:
            parts = _Parts(upload, size, self._tally)
            try:
                etag = self._put(upload, parts, size)
            except BaseException:
                self._tally.add_bytes(-parts.counted)
                if parts.problem is not None:  # obstore hides it
                    raise parts.problem from None
                raise
            if _plain(etag) != etag_of_parts(parts.md5s):
                self._read_back(upload, parts.md5s, size)

        self._retries.call(send)
        self._tally.add_object()

    def _put(self, upload: Upload, parts: _Parts, size: int) -> str | None:
        """Send the parts; return the ETag of the object."""
        import obstore

        name = self._name(upload)
        try:
            with self._translated_errors(upload):
                return obstore.put(
                    self._part_store,
                    name,
                    iter(parts),
                    use_multipart=True,
                    chunk_size=size,
                    max_concurrency=max(1, _IN_FLIGHT_BYTES // size),
                )["e_tag"]
        except StoreAccessError:
            raise
        except StoreRefusedError:
            if parts.problem is not None:
                raise
            # obstore repeats the request that completes an upload. If the first was applied, lakeFS
            # refuses the second: the ETag of the object shows it.
            with self._translated_errors(upload):
                return obstore.head(self._store, name)["e_tag"]

    def _read_back(self, upload: Upload, md5s: Sequence[bytes], size: int) -> None:
        """Read the object back and compare part by part: an encrypting storage has other ETags.

        Raises StoreUnavailableError if its bytes aren't those that were sent.
        """
        import obstore

        def compare(number: int) -> None:
            start = number * size
            end = min(start + size, upload.signature.size)
            with self._translated_errors(upload):
                found = obstore.get_range(self._store, self._name(upload), start=start, end=end)
            if hashlib.md5(found, usedforsecurity=False).digest() != md5s[number]:
                raise _other_bytes(upload, f"part {number + 1} of {len(md5s)} differs")

        in_parallel(range(len(md5s)), compare, threads=max(1, _IN_FLIGHT_BYTES // size))

    def _translated_errors(self, upload: Upload) -> AbstractContextManager[None]:
        return translated_errors(
            f"uploading {upload.key!r} to branch {self._branch!r}", self._config
        )

    def _name(self, upload: Upload) -> str:
        return f"{self._branch}/{upload.key}"


def _check(upload: Upload) -> None:
    if len(upload.key.encode()) > _MAX_KEY_BYTES:  # the server wouldn't say why it failed
        raise StoreRefusedError(
            f"key {upload.key!r} is longer than lakeFS's {_MAX_KEY_BYTES} bytes",
            fix="write that file to a shorter path",
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
    """The parts of a large file, to iterate over once; keeps their md5s and the error, if any.

    The file's signature is checked again before each part is sent. So an upload that is completed
    has only bytes that the guardrails checked.
    """

    def __init__(self, upload: Upload, size: int, tally: Tally) -> None:
        self._upload = upload
        self._size = size
        self._tally = tally
        self.md5s: list[bytes] = []
        self.counted = 0
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
                self.counted += len(part)
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
    return StoreUnavailableError(
        f"uploading {upload.key!r}: lakeFS received other bytes than were sent ({evidence})",
        fix="look for a proxy that changes them, then retry",
    )
