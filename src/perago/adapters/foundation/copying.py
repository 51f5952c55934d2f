"""Bytes from one open file to another, hashed on the way, in bounded memory."""

from __future__ import annotations

import fcntl
import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Moved = Callable[[int], None]
    """Told of every piece that was moved, with its size."""

CHUNK = 1 << 20
"""What is read and written at a time; an object of up to this size is held in memory whole."""

_FICLONE = 0x40049409  # linux/fs.h; the standard library has no name for it


def read_whole(source: int, size: int) -> bytes:
    """A small file's bytes: one read, and one byte more than expected, to see that it has grown."""
    data = os.read(source, size + 1)
    while len(data) < size and (more := os.read(source, size + 1 - len(data))):
        data += more
    return data


def write_all(target: int, data: bytes | memoryview) -> None:
    """Write every byte, in as many goes as the system takes."""
    written = os.write(target, data)
    while written < len(data):
        written += os.write(target, data[written:])


def copy_hashing(source: int, target: int, size: int, moved: Moved) -> tuple[int, str]:
    """Copy all of ``source``; returns how many bytes ``target`` got and their sha256.

    Where the filesystem can share the blocks of two files, a large file is not copied at all, and
    the hash is read back from the target: it is always of the bytes that are there.
    """
    if size <= CHUNK:
        data = read_whole(source, size)
        write_all(target, data)
        moved(len(data))
        return len(data), hashlib.sha256(data).hexdigest()
    if share_blocks(source, target):
        return hash_of(target, moved)
    return _pump(source, target, moved)


def hash_of(source: int, moved: Moved = lambda _count: None) -> tuple[int, str]:
    """The size and sha256 of an open file."""
    return _pump(source, None, moved)


def _pump(source: int, target: int | None, moved: Moved) -> tuple[int, str]:
    digest = hashlib.sha256()
    # A buffer of its full size costs more than reading a small file does.
    buffer = memoryview(bytearray(min(CHUNK, os.fstat(source).st_size + 1)))
    total = 0
    while count := os.preadv(source, [buffer], total):
        piece = buffer[:count]
        digest.update(piece)
        if target is not None:
            write_all(target, piece)
        total += count
        moved(count)
    return total, digest.hexdigest()


def share_blocks(source: int, target: int) -> bool:
    """Make ``target`` a copy of ``source`` that takes no room; False if that can't be done here."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:  # no such filesystem, two of them, or no Linux: the bytes are copied instead
        return False
    return True
