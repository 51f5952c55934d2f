"""What lakeFS's checksums say of an object's bytes, and in which parts large ones travel.

An object that came in one request has the md5 of its bytes; one that came in parts has the md5 of
its parts' md5s, and in listings nothing tells the two apart. Where lakeFS didn't see the bytes
(imported objects, uploads straight to the storage), it has what the storage said, which may be no
hash at all.
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
"""Up to this size an object is moved in one request; the size of a larger one's parts."""

_MOST_PARTS = 10_000  # S3's own limit
_MIB = 1 << 20
_SMALLEST_PART = 5 * _MIB  # S3's own limit, for all parts but the last
MD5 = re.compile(r"[0-9a-f]{32}")


def part_size(size: int) -> int:
    """Of an object of this size: always the same, since the checksum depends on it."""
    needed = -(-size // _MOST_PARTS)
    return max(WHOLE, -(-needed // _MIB) * _MIB)


def md5(data: bytes | memoryview | Bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def etag_of_parts(md5s: Iterable[bytes]) -> str:
    """The ETag of an object that came in parts with these md5 digests."""
    digests = list(md5s)
    return f"{md5(b''.join(digests))}-{len(digests)}"


def tells(entry: ObjectEntry) -> bool:
    """Whether its checksum depends on its bytes alone: it can't have come in several parts."""
    return entry.size <= _SMALLEST_PART and MD5.fullmatch(entry.checksum) is not None


def matches(entry: ObjectEntry, data: bytes | Bytes) -> bool:
    """Whether these are its bytes, for an entry whose checksum :func:`tells`."""
    found = hashlib.md5(data, usedforsecurity=False)
    if found.hexdigest() == entry.checksum:
        return True
    return md5(found.digest()) == entry.checksum  # it came as the one and only part


def hashed_by_server(entry: ObjectEntry) -> bool:
    """Whether lakeFS itself has computed its checksum, as it does when it writes to a disk."""
    return entry.location.startswith("local://")
