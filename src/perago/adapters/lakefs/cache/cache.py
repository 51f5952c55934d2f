"""The cache as a download uses it: copy out what it has, keep what is downloaded."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perago.adapters.lakefs.cache.index import Index
from perago.adapters.lakefs.cache.packs import (
    BackgroundCopier,
    CacheWriter,
    bytes_of,
    remove,
    remove_abandoned,
)
from perago.adapters.lakefs.cache.reader import CachedObject, copy_objects
from perago.errors import PeragoError, StoreFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from perago.adapters.lakefs.cache.index import PackPosition
    from perago.adapters.local_io.parallel import Tally
    from perago.model.workspace import Download, FetchedFile


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What :meth:`ObjectCache.trim` removed, and what is left."""

    removed_bytes: int
    kept_bytes: int


class ObjectCache:
    """Objects by their address in the store, checksum and size; up to ``limit_bytes``.

    For any number of threads and processes. The least recently used objects are removed first.
    Objects that are being downloaded come on top of the limit.
    """

    def __init__(self, directory: Path, *, limit_bytes: int) -> None:
        self._directory = directory
        self._packs = directory / "packs"
        self._index = Index(directory / "index.db")
        self._limit = limit_bytes
        self._copier = BackgroundCopier()
        self._is_cleaned = False

    def close(self) -> None:
        """Finish the copies into the cache, and close its files."""
        self.settle()
        self._index.close()

    def settle(self) -> None:
        """Wait until the copies into the cache are finished."""
        self._copier.settle()

    def copy_out(
        self, wanted: Sequence[Download], tally: Tally
    ) -> tuple[list[FetchedFile], Sequence[Download]]:
        """Copy what it has to the wanted files; return these and what is missing."""
        self.settle()  # a copy in progress may be a wanted object
        found = self._find(wanted)
        if not found:
            return [], wanted
        files = copy_objects(self._packs, found, tally)
        copied = {file.key for file in files}
        self._update_index(found, copied)
        return files, [one for one in wanted if one.entry.key not in copied]

    @contextmanager
    def writer(self) -> Iterator[CacheWriter]:
        """For the objects that are downloaded inside the block."""
        self._clean_once()
        writer = CacheWriter(self._packs, self._index, self._copier, self._limit)
        try:
            yield writer
        finally:
            writer.end()

    def trim(self, *, dry_run: bool = False) -> Trimmed:
        """Remove what exceeds the limit, and what processes that died left behind."""
        self.settle()
        before = bytes_of(self._packs)
        with self._errors_ignored():
            if dry_run:
                removable = bytes_of(self._packs, self._index.packs_over(self._limit))
                return Trimmed(removable, before - removable)
            if self._directory.exists():
                remove(self._packs, self._index.remove_packs_over(self._limit))
                remove_abandoned(self._packs, self._index.packs)
        kept = bytes_of(self._packs)
        return Trimmed(max(0, before - kept), kept)

    def _find(self, wanted: Sequence[Download]) -> list[CachedObject]:
        positions: list[PackPosition | None] = []
        with self._errors_ignored():
            positions = self._index.positions([one.entry for one in wanted])
        return [
            CachedObject(one, position)
            for one, position in zip(wanted, positions, strict=False)
            if position is not None
        ]

    def _update_index(self, found: list[CachedObject], copied: set[str]) -> None:
        """Mark the packs as used, and forget the objects that could not be copied."""
        bad = [one.download.entry for one in found if one.download.entry.key not in copied]
        with self._errors_ignored():
            self._index.touch({one.position.pack for one in found})
            if bad:
                self._index.forget(bad)

    def _clean_once(self) -> None:
        if not self._is_cleaned:
            self._is_cleaned = True
            with self._errors_ignored():
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                remove_abandoned(self._packs, self._index.packs)

    @contextmanager
    def _errors_ignored(self) -> Iterator[None]:
        try:
            yield
        except StoreFormatError:
            with suppress(OSError, PeragoError):
                self._index.start_over()
        except (OSError, PeragoError):
            pass
