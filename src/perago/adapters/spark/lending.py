"""The embedded store's own files, under second names in an attempt's directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from perago.adapters.spark.paths import above
from perago.model.changes import Download

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from perago.model.commit import ObjectEntry

    Bring = Callable[[Sequence[Download]], object]

_OPEN, _SEALED = 0o755, 0o555


class Lender(Protocol):
    """A store whose objects are files that can be given a second name."""

    def lend(self, wanted: Sequence[Download]) -> None: ...


class _Lent(NamedTuple):
    """How a file was found right after it was put there."""

    inode: int
    size: int
    mtime_ns: int
    is_the_stores: bool

    @classmethod
    def of(cls, stat: os.stat_result) -> _Lent:
        return cls(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_nlink > 1)

    def is_of(self, stat: os.stat_result) -> bool:
        return (self.inode, self.size, self.mtime_ns) == (
            stat.st_ino,
            stat.st_size,
            stat.st_mtime_ns,
        )


class LentFiles:
    """A directory with objects of a store in it, each put there once.

    In a ``sealed`` one nothing can be added, removed or replaced by who obeys permissions.
    """

    def __init__(self, place: Path, *, sealed: bool) -> None:
        self.place = place
        self._sealed = sealed
        self._files: dict[str, _Lent] = {}

    def uri(self, path: str) -> str:
        """As Hadoop reads one: it takes every sign for itself, also a ``%``."""
        return f"file://{self.place}/{path}"

    def add(self, wanted: Mapping[str, ObjectEntry], bring: Bring) -> None:
        """Have these there, by ``bring``, but for those that were put there before."""
        new = {path: entry for path, entry in wanted.items() if path not in self._files}
        folders = sorted({folder for path in new for folder in ("", *above(path))})
        self.place.mkdir(parents=True, exist_ok=True)
        for folder in folders:
            (self.place / folder).mkdir(exist_ok=True)
            if self._sealed:
                (self.place / folder).chmod(_OPEN)
        bring([Download(entry, self.place / path) for path, entry in new.items()])
        for path in new:
            self._files[path] = _Lent.of((self.place / path).stat())
        for folder in folders if self._sealed else ():
            (self.place / folder).chmod(_SEALED)

    def is_untouched(self, path: str, stat: os.stat_result) -> bool:
        """Whether what is found there now is what was put there."""
        lent = self._files.get(path)
        return lent is not None and lent.is_of(stat)

    def written_through(self) -> Iterator[str]:
        """Files of the store that somebody who needn't obey has written in place."""
        for path, lent in self._files.items():
            if not lent.is_the_stores:
                continue
            try:
                stat = (self.place / path).lstat()
            except OSError:  # only a name is gone
                continue
            if stat.st_ino == lent.inode and not lent.is_of(stat):
                yield path
