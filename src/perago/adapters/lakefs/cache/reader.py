"""Copies objects from packs to new files, and verifies their hashes."""

from __future__ import annotations

import hashlib
import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

from perago.adapters.lakefs.download import create_file, new_file
from perago.adapters.local_io.file_copy import copy_hashing
from perago.adapters.local_io.parallel import in_parallel
from perago.errors import CorruptObjectError, StoreError
from perago.model.workspace import FetchedFile, Signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from perago.adapters.lakefs.cache.index import PackPosition
    from perago.adapters.local_io.parallel import Tally
    from perago.model.workspace import Download


_THREADS = 2
_RANGE_BYTES = 1 << 20
_IN_MEMORY_BYTES = 8 << 20


class CachedObject(NamedTuple):
    """A wanted object, and where the index says it is."""

    download: Download
    position: PackPosition


class _PackRange(NamedTuple):
    """Adjacent objects in one pack, which are read at once."""

    source: int
    objects: list[CachedObject]


def copy_objects(
    directory: Path, objects: Iterable[CachedObject], tally: Tally
) -> list[FetchedFile]:
    """Copy the objects to their files; of a missing or damaged one no file is left."""
    with ExitStack() as opened:
        ranges = list(_ranges(directory, objects, opened))
        copied = in_parallel(ranges, lambda adjacent: _copy(adjacent, tally), threads=_THREADS)
    return [file for files in copied for file in files]


def _ranges(
    directory: Path, objects: Iterable[CachedObject], opened: ExitStack
) -> Iterator[_PackRange]:
    by_pack: dict[str, list[CachedObject]] = {}
    for one in objects:
        by_pack.setdefault(one.position.pack, []).append(one)
    for pack, there in by_pack.items():
        with suppress(OSError):
            source = os.open(directory / pack, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, source)
            yield from _ranges_of_pack(source, there)


def _ranges_of_pack(source: int, objects: list[CachedObject]) -> Iterator[_PackRange]:
    adjacent: list[CachedObject] = []
    end = 0
    for one in sorted(objects, key=lambda one: one.position.start):
        start = one.position.start
        if adjacent and (start != end or start - adjacent[0].position.start >= _RANGE_BYTES):
            yield _PackRange(source, adjacent)
            adjacent = []
        adjacent.append(one)
        end = start + one.download.entry.size
    if adjacent:
        yield _PackRange(source, adjacent)


def _copy(adjacent: _PackRange, tally: Tally) -> list[FetchedFile]:
    first, last = adjacent.objects[0], adjacent.objects[-1]
    size = last.position.start + last.download.entry.size - first.position.start
    if size > _IN_MEMORY_BYTES + _RANGE_BYTES:
        files = [_copy_large(adjacent.source, first, tally)]
    else:
        try:
            data = memoryview(os.pread(adjacent.source, size, first.position.start))
        except OSError:
            return []
        files = [_copy_small(data, first.position.start, one, tally) for one in adjacent.objects]
    return [file for file in files if file is not None]


def _copy_small(data: memoryview, base: int, one: CachedObject, tally: Tally) -> FetchedFile | None:
    (entry, path), position = (one.download.entry, one.download.path), one.position
    piece = data[position.start - base : position.start - base + entry.size]
    if len(piece) != entry.size or hashlib.sha256(piece).hexdigest() != position.sha256:
        return None
    try:
        signature = create_file(path, piece)
    except StoreError:  # the download meets the same error and raises it
        return None
    tally.add(1, entry.size)
    return FetchedFile(entry.key, position.sha256, signature)


def _copy_large(source: int, one: CachedObject, tally: Tally) -> FetchedFile | None:
    entry, moved = one.download.entry, 0

    def count(piece: int) -> None:
        nonlocal moved
        moved += piece
        tally.add_bytes(piece)

    try:
        with new_file(one.download.path) as target:
            found = copy_hashing(source, target, entry.size, count)
            _assert_same(found, (entry.size, one.position.sha256))
            signature = Signature.of(os.fstat(target))
    except StoreError:
        tally.add_bytes(-moved)
        return None
    tally.add_object()
    return FetchedFile(entry.key, one.position.sha256, signature)


def _assert_same(found: tuple[int, str], expected: tuple[int, str]) -> None:
    if found != expected:
        raise CorruptObjectError("the pack has other bytes than were put there")
