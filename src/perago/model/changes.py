"""Local files on their way into or out of a store, and what a task changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from perago.model.commit import ObjectEntry
    from perago.model.outcome import Transfer


@dataclass(frozen=True, slots=True)
class Signature:
    """What a stat tells of a file's content: equal signatures mean untouched bytes.

    The change time can't be set by a program, so a rewrite that restores size and mtime still
    shows; the local engine makes sure that no write can share the baseline's clock tick.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Signature:
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    def is_of(self, stat: os.stat_result) -> bool:
        """The same as comparing with :meth:`of`, without making one."""
        return (
            self.ctime_ns == stat.st_ctime_ns
            and self.mtime_ns == stat.st_mtime_ns
            and self.size == stat.st_size
            and self.inode == stat.st_ino
        )


@dataclass(frozen=True, slots=True)
class Download:
    """One object wanted as a file. The file must not exist; its directories do."""

    entry: ObjectEntry
    path: str | Path


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A file as it was put in place: its bytes' hash and the stat taken right after."""

    key: str
    sha256: str
    signature: Signature


@dataclass(frozen=True, slots=True)
class Fetched:
    """A download's files, and how much of them really had to be brought from the store."""

    files: list[FetchedFile]
    moved: Transfer


@dataclass(frozen=True, slots=True)
class Upload:
    """One file to store. Its signature is the one that was checked; another one is refused.

    A ``spare`` one is nobody's any more: the store may take the file itself instead of a copy.
    """

    key: str
    path: Path
    signature: Signature
    spare: bool = False


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What a task did to its workspace, as object keys of the repository.

    What is ``staged`` is on the staging branch already: the body wrote it straight there.
    """

    uploads: tuple[Upload, ...] = ()
    deletes: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.uploads or self.deletes or self.staged)

    @property
    def keys(self) -> list[str]:
        return sorted([*(u.key for u in self.uploads), *self.deletes, *self.staged])

    @property
    def bytes(self) -> int:
        return sum(u.signature.size for u in self.uploads)
