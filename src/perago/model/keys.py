"""Which object keys can be, exactly, files of a workspace, and the way between the two.

A store takes any string as a key; a directory doesn't. A key that couldn't be read back under
the very same name is refused, by name, before anything is written.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from perago.errors import UnsafeKeyError
from perago.model.commit import ACTIONS_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable

MARKER_NAME = ".perago-attempt.json"
"""The file that identifies an attempt's directory. Reserved: no object may have this name."""

_SEGMENT_BYTES = 255
_PATH_BYTES = 3000  # below PATH_MAX with room for the attempt's own directory
# All of Unicode's Cc and Cs, and what a server shows in place of bytes that are no text.
_NOT_TEXT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffd]")


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
