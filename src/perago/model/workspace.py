"""A workspace: where its data is, its files on the way in and out, and which keys can be files."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints

from perago.errors import UnsafeKeyError
from perago.model.commit import ACTIONS_PREFIX

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable
    from pathlib import Path

    from perago.model.commit import ObjectEntry
    from perago.model.progress import Transfer


Name = Annotated[
    str, StringConstraints(strict=True, min_length=1, strip_whitespace=False, pattern=r"\S")
]
MARKER_NAME = ".perago-attempt.json"
"""The file that identifies an attempt's directory. No object may have this name."""
_SEGMENT_BYTES = 255
_PATH_BYTES = 3000  # below PATH_MAX with room for the attempt's own directory
# Unicode's Cc and Cs, and the character that servers put in place of bytes that aren't text.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")


class WorkspaceRef(BaseModel):
    # Registered task definitions contain this docstring: another text makes them differ.
    """A task's ``workspace`` input and output: all four fields, nothing else."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repository: Name
    branch: Name
    ref_type: Literal["commit"]
    ref: Name

    def moved_to(self, ref: str) -> WorkspaceRef:
        """The same branch at another commit."""
        return self.model_copy(update={"ref": ref})


@dataclass(frozen=True, slots=True)
class Signature:
    """A file's stat as a fingerprint: equal signatures mean untouched bytes.

    A program can't set the change time, so a rewrite that restores size and mtime still shows. The
    local engine makes sure that no write can share the clock tick of the first stat.
    """

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, stat: os.stat_result) -> Signature:
        return cls(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)

    def is_of(self, stat: os.stat_result) -> bool:
        """Whether :meth:`of` this stat would be equal, without creating one."""
        return (
            self.ctime_ns == stat.st_ctime_ns
            and self.mtime_ns == stat.st_mtime_ns
            and self.size == stat.st_size
            and self.inode == stat.st_ino
        )


@dataclass(frozen=True, slots=True)
class Download:
    """An object to download, and the file to write. The file must not exist; its directory must."""

    entry: ObjectEntry
    path: str | Path


@dataclass(frozen=True, slots=True)
class FetchedFile:
    """A downloaded file: the hash of its bytes, and its stat right after it was written."""

    key: str
    sha256: str
    signature: Signature


@dataclass(frozen=True, slots=True)
class Fetched:
    """A download's files, and the part that came from the store rather than from a cache."""

    files: list[FetchedFile]
    moved: Transfer


@dataclass(frozen=True, slots=True)
class Upload:
    """One file to store. The store refuses it if its signature has changed since the checks.

    A ``spare`` file has no other use: the store may take the file itself instead of a copy.
    """

    key: str
    path: Path
    signature: Signature
    spare: bool = False


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What a task did to its workspace, as object keys of the repository.

    ``staged`` keys are on the staging branch already: the body wrote them there itself.
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


def key_prefix(prefix: str) -> str:
    """The key prefix a workspace's prefix stands for: ``songs`` means ``songs/…`` only."""
    stripped = prefix.strip("/")
    return f"{stripped}/" if stripped else ""


def problem_with(path: str) -> str | None:
    """Why this relative path can't be a file of a workspace; None if it can."""
    if not path:
        return "it is empty below the prefix"
    if path.startswith("/"):
        return "it starts with '/' below the prefix"
    if path.endswith("/"):
        return "it ends with '/'"
    if len(path.encode("utf-8", "surrogatepass")) > _PATH_BYTES:
        return f"it is longer than {_PATH_BYTES} bytes"
    return next(filter(None, map(_problem_with_segment, path.split("/"))), None)


def _problem_with_segment(segment: str) -> str | None:
    if not segment:
        return "it has an empty segment ('//')"
    if segment in (".", ".."):
        return f"it has a '{segment}' segment"
    if segment == MARKER_NAME:
        return f"the name {MARKER_NAME} is reserved for the runtime"
    if _NOT_TEXT.search(segment):
        return "it has a control character, an unpaired surrogate or something that is no text"
    if len(segment.encode()) > _SEGMENT_BYTES:
        return f"a segment is longer than {_SEGMENT_BYTES} bytes"
    return None


def workspace_paths(
    keys: Iterable[str], prefix: str, *, folds_case: bool = False
) -> dict[str, str]:
    """Map each key below ``prefix`` to its path inside the workspace, in the keys' order.

    Raises :class:`UnsafeKeyError`, naming the key, if any of them can't be a file, or if two of
    them can't be files together: ``a`` beside ``a/b``, or names that the filesystem folds into one.
    """
    start = key_prefix(prefix)
    paths: dict[str, str] = {}
    for key in keys:
        if not start and key.startswith(ACTIONS_PREFIX):
            continue
        path = key[len(start) :]
        if problem := problem_with(path):
            raise _unsafe(key, problem)
        paths[key] = path
    _refuse_files_that_are_directories(paths)
    if folds_case:
        _refuse_names_that_fold_together(paths)
    return paths


def _refuse_files_that_are_directories(paths: dict[str, str]) -> None:
    directories: dict[str, str] = {}
    for key, path in paths.items():
        parent = path.rpartition("/")[0]
        while parent and parent not in directories:
            directories[parent] = key
            parent = parent.rpartition("/")[0]
    for key, path in paths.items():
        if path in directories:
            raise _unsafe(
                key, f"it would be a file, and {directories[path]!r} needs it as a directory"
            )


def _refuse_names_that_fold_together(paths: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for key, path in paths.items():
        parts = path.split("/")
        for depth in range(1, len(parts) + 1):
            exact = "/".join(parts[:depth])
            folded = unicodedata.normalize("NFC", exact).casefold()
            if seen.setdefault(folded, exact) != exact:
                raise _unsafe(key, f"this filesystem can't tell it from {seen[folded]!r}")


def _unsafe(key: str, problem: str) -> UnsafeKeyError:
    return UnsafeKeyError(
        f"object key {key!r} can't be a file of the workspace: {problem}",
        fix="rename or remove that object in the store, then start again from the new commit",
    )
