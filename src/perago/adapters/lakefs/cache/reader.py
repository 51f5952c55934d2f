"""Objects out of packs, to new files: each is hashed on its way, and only the right bytes count."""

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


THREADS = 2
_RUN_BYTES = 1 << 20
_IN_MEMORY = 8 << 20


class CachedObject(NamedTuple):
    """An object that is wanted, and where it should be."""

    download: Download
    place: PackPosition


class PackRange(NamedTuple):
    """Objects that lie one behind the other in one pack: they are read in one go."""

    source: int
    finds: list[CachedObject]


def copy_objects(directory: Path, finds: Iterable[CachedObject], tally: Tally) -> list[FetchedFile]:
    """Each that can be had to its file; of the others there is no file."""
    with ExitStack() as opened:
        runs = list(_runs(directory, finds, opened))
        delivered = in_parallel(runs, lambda run: _deliver(run, tally), threads=THREADS)
    return [file for files in delivered for file in files]


def _runs(directory: Path, finds: Iterable[CachedObject], opened: ExitStack) -> Iterator[PackRange]:
    by_pack: dict[str, list[CachedObject]] = {}
    for find in finds:
        by_pack.setdefault(find.place.pack, []).append(find)
    for pack, there in by_pack.items():
        with suppress(OSError):
            source = os.open(directory / pack, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            opened.callback(os.close, source)
            yield from _runs_of_pack(source, there)


def _runs_of_pack(source: int, finds: list[CachedObject]) -> Iterator[PackRange]:
    run: list[CachedObject] = []
    end = 0
    for find in sorted(finds, key=lambda find: find.place.start):
        start = find.place.start
        if run and (start != end or start - run[0].place.start >= _RUN_BYTES):
            yield PackRange(source, run)
            run = []
        run.append(find)
        end = start + find.download.entry.size
    if run:
        yield PackRange(source, run)


def _deliver(run: PackRange, tally: Tally) -> list[FetchedFile]:
    first, last = run.finds[0], run.finds[-1]
    size = last.place.start + last.download.entry.size - first.place.start
    if size > _IN_MEMORY + _RUN_BYTES:
        files = [_deliver_large(run.source, first, tally)]
    else:
        try:
            data = memoryview(os.pread(run.source, size, first.place.start))
        except OSError:
            return []
        files = [_deliver_small(data, first.place.start, find, tally) for find in run.finds]
    return [file for file in files if file is not None]


def _deliver_small(
    data: memoryview, base: int, find: CachedObject, tally: Tally
) -> FetchedFile | None:
    (entry, path), place = (find.download.entry, find.download.path), find.place
    piece = data[place.start - base : place.start - base + entry.size]
    if len(piece) != entry.size or hashlib.sha256(piece).hexdigest() != place.sha256:
        return None
    try:
        signature = create_file(path, piece)
    except StoreError:  # fetching it will meet the same, and tell
        return None
    tally.add(1, entry.size)
    return FetchedFile(entry.key, place.sha256, signature)


def _deliver_large(source: int, find: CachedObject, tally: Tally) -> FetchedFile | None:
    entry, moved = find.download.entry, 0

    def count(piece: int) -> None:
        nonlocal moved
        moved += piece
        tally.add_bytes(piece)

    try:
        with new_file(find.download.path) as target:
            found = copy_hashing(source, target, entry.size, count)
            _assert_same(found, (entry.size, find.place.sha256))
            signature = Signature.of(os.fstat(target))
    except StoreError:
        tally.add_bytes(-moved)
        return None
    tally.add_object()
    return FetchedFile(entry.key, find.place.sha256, signature)


def _assert_same(found: tuple[int, str], expected: tuple[int, str]) -> None:
    if found != expected:
        raise CorruptObjectError("what is in the pack isn't what was put there")
