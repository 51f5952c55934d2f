"""lakeFS's checksums of objects, and the part size of large uploads.

The checksum of an object that was uploaded in one request is the md5 of its bytes. For an upload in
parts, it is the md5 of the parts' md5s; a listing doesn't show which. If lakeFS never saw the bytes
(imports, uploads straight to the storage), it is the storage's own, which may not be a hash.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from obstore import Bytes

    from perago.model.commit import ObjectEntry

WHOLE = 8 << 20
"""Up to this size, an object is transferred in one request; larger ones in parts of it."""

_MOST_PARTS = 10_000  # S3's own limit
_MIB = 1 << 20
_SMALLEST_PART = 5 * _MIB  # S3's own limit, for all parts but the last
MD5 = re.compile(r"[0-9a-f]{32}")


def part_size(size: int) -> int:
    """The part size for an object of this size: always the same, as the checksum depends on it."""
    needed = -(-size // _MOST_PARTS)
    return max(WHOLE, -(-needed // _MIB) * _MIB)


def md5(data: bytes | memoryview | Bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def etag_of_parts(md5s: Iterable[bytes]) -> str:
    """The ETag of an object that came in parts with these md5 digests."""
    digests = list(md5s)
    return f"{md5(b''.join(digests))}-{len(digests)}"


def is_verifiable(entry: ObjectEntry) -> bool:
    """Whether its checksum depends on its bytes alone: it is too small for several parts."""
    return entry.size <= _SMALLEST_PART and MD5.fullmatch(entry.checksum) is not None


def matches(entry: ObjectEntry, data: bytes | Bytes) -> bool:
    """Whether these are its bytes, for an entry that :func:`is_verifiable`."""
    found = hashlib.md5(data, usedforsecurity=False)
    if found.hexdigest() == entry.checksum:
        return True
    return md5(found.digest()) == entry.checksum  # uploaded in a single part


def hashed_by_server(entry: ObjectEntry) -> bool:
    """Whether lakeFS itself computed the checksum, as it does for storage on its own disk."""
    return entry.location.startswith("local://")
