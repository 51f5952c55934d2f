"""What one download brings, on its way into packs."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from perago.adapters.lakefs.cache.index import Place
from perago.adapters.lakefs.cache.packs import Pack, remove
from perago.errors import PeragoError

if TYPE_CHECKING:
    from pathlib import Path

    from obstore import Bytes

    from perago.adapters.lakefs.cache.copier import Copier
    from perago.adapters.lakefs.cache.index import Index
    from perago.model.commit import ObjectEntry

PACK_BYTES = 64 << 20


class Filling:
    """Objects are added by any thread. The first thing that goes wrong ends it, silently."""

    def __init__(self, directory: Path, index: Index, copier: Copier, limit: int) -> None:
        self._directory = directory
        self._copier = copier
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

    def add_file(self, entry: ObjectEntry, source: int, sha256: str) -> None:
        """Keep a large object, from the open file it was written to: later, while others go on.

        Whoever has the file by then may change it. What is kept of it isn't the object, in that
        case, and is found out when it is to be delivered.
        """
        if self._over or not self._wants(entry):
            return
        with suppress(OSError):
            duplicate = os.dup(source)
            self._copier.do(lambda: self._copy(entry, duplicate, sha256))

    def _copy(self, entry: ObjectEntry, source: int, sha256: str) -> None:
        try:
            pack = Pack.create(self._directory)
            try:
                pack.take_copy(source)
                self._commit(pack, [(entry, Place(pack.name, 0, sha256))])
            except BaseException:
                pack.discard()
                raise
            pack.close()
        except (OSError, PeragoError):
            pass
        finally:
            os.close(source)

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
