"""What one download brings, on its way into packs."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from perago.adapters.lakefs.cache.index import Place
from perago.adapters.lakefs.cache.packs import Pack, remove
from perago.errors import PeragoError

if TYPE_CHECKING:
    from pathlib import Path

    from obstore import Bytes

    from perago.adapters.lakefs.cache.index import Index
    from perago.model.commit import ObjectEntry

PACK_BYTES = 64 << 20


class Filling:
    """Objects are added by any thread. The first thing that goes wrong ends it, silently."""

    def __init__(self, directory: Path, index: Index, limit: int) -> None:
        self._directory = directory
        self._index = index
        self._limit = limit
        # Packs go as a whole, so there have to be several of them within the limit.
        self._pack_bytes = min(PACK_BYTES, limit // 8)
        self._guard = threading.Lock()
        self._pack: Pack | None = None
        self._places: list[tuple[ObjectEntry, Place]] = []
        self._over = False

    def add(self, entry: ObjectEntry, data: bytes | Bytes, sha256: str) -> None:
        """Keep a small object."""
        if self._over or not self._wants(entry):
            return
        with self._guard:
            try:
                self._append(entry, data, sha256)
            except (OSError, PeragoError):
                self._give_up()

    def copy_of(self, entry: ObjectEntry) -> Copy | None:
        """To keep a large object while it comes; None if it isn't wanted."""
        return None if self._over or not self._wants(entry) else Copy(self, entry)

    def open_for_one(self) -> Pack:
        """A pack for a large object alone. Raises OSError."""
        return Pack.create(self._directory)

    def keep_one(self, pack: Pack, entry: ObjectEntry, sha256: str) -> None:
        """Make known what such a pack holds. Raises PeragoError."""
        self._commit(pack, [(entry, Place(pack.name, 0, sha256))])

    def end(self) -> None:
        """Make known what isn't yet."""
        with self._guard:
            try:
                self._commit_open_pack()
            except (OSError, PeragoError):
                self._give_up()

    def _wants(self, entry: ObjectEntry) -> bool:
        return bool(entry.location) and entry.size <= self._limit // 4

    def _append(self, entry: ObjectEntry, data: bytes | Bytes, sha256: str) -> None:
        if self._over:
            return
        if self._pack is None:
            self._pack = self._open_pack()
        start = self._pack.append(data)
        self._places.append((entry, Place(self._pack.name, start, sha256)))
        if self._pack.size >= self._pack_bytes:
            self._commit_open_pack()

    def _open_pack(self) -> Pack:
        """One with much room left, so that many small downloads don't leave as many files."""
        name = self._index.roomy_pack(self._pack_bytes // 2)
        if name is not None:
            with suppress(OSError):  # it is being filled by another process, or gone
                return Pack.reopen(self._directory / name)
        return Pack.create(self._directory)

    def _commit_open_pack(self) -> None:
        if self._pack is not None:
            self._commit(self._pack, self._places)
            self._pack.close()
            self._pack, self._places = None, []

    def _commit(self, pack: Pack, places: list[tuple[ObjectEntry, Place]]) -> None:
        gone = self._index.add(pack.name, pack.size, places, limit=self._limit)
        remove(self._directory, gone)

    def _give_up(self) -> None:
        self._over = True
        if self._pack is not None:
            with suppress(OSError):
                self._pack.discard()
            self._pack = None


class Copy:
    """A large object in a pack of its own, from beginning to end; by one thread at a time.

    ``source`` is the open file that it is written to: where that can be, its blocks are shared once
    it is complete. The first thing that goes wrong ends it, silently.
    """

    def __init__(self, filling: Filling, entry: ObjectEntry) -> None:
        self._filling = filling
        self._entry = entry
        self._pack: Pack | None = None
        self._shares = False
        self._over = False

    def append(self, data: bytes | memoryview, source: int) -> None:
        """The next of its bytes."""
        if self._over or self._shares:
            return
        try:
            if self._pack is None:
                self._pack = self._filling.open_for_one()
                self._shares = self._pack.share(source)
            if not self._shares:
                self._pack.append(data)
        except OSError:
            self.close()

    def end(self, sha256: str, source: int) -> None:
        """All of it was appended, and this is its hash."""
        if self._pack is None:
            return
        try:
            if self._shares and not self._pack.share(source):
                return
            self._filling.keep_one(self._pack, self._entry, sha256)
        except (OSError, PeragoError):
            return
        self._pack.close()
        self._pack = None

    def close(self) -> None:
        """Nothing is left of it unless it was ended."""
        self._over = True
        if self._pack is not None:
            with suppress(OSError):
                self._pack.discard()
            self._pack = None
