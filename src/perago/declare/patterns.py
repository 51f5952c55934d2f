"""Paths and glob patterns inside a workspace: which ones make sense, and what they match.

A pattern's segments are matched one by one: ``*`` and ``?`` never cross a ``/`` and match leading
dots too, ``[abc]`` and ``[!abc]`` are character classes, and ``**`` as a whole segment stands for
any number of directories, none included; at the end, for every file below.
"""

from __future__ import annotations

import os
import re
from os import PathLike
from pathlib import PurePath

from perago.errors import TaskDefinitionError
from perago.model.keys import problem_with

SPARK_WILDCARD = re.compile(r"[*?\[\]{}]")
"""What Spark's readers, in a path, take for more than itself."""

_SPECIAL_IN_CLASS = re.compile(r"([\[&~|\\^])")


def as_text(path: str | PathLike[str]) -> str:
    """A path as the text it means inside a workspace, whichever kind of path object it is."""
    return path.as_posix() if isinstance(path, PurePath) else os.fspath(path)


def checked_path(path: str, call: str) -> str:
    """A path relative to the prefix that a file of the workspace can have.

    ``call`` is how the user wrote it, for the message. Raises TaskDefinitionError.
    """
    if "\\" in path:
        raise TaskDefinitionError(
            f"{call}: {path!r} has a backslash, which is no separator in a workspace",
            fix=f"write {path.replace(chr(92), '/')!r}",
        )
    if problem := problem_with(path):
        raise TaskDefinitionError(
            f"{call}: {path!r} can't match any file below the prefix: {problem}",
            fix=f"write a path relative to the workspace's prefix, such as {_nearest(path)!r}",
        )
    return path


def regex_of_file(path: str) -> str:
    """Matches that file alone, special characters and all."""
    return re.escape(path)


def regex_below(path: str) -> str:
    """Matches every file below that directory."""
    return f"{re.escape(path)}/.+"


def regex_of_glob(pattern: str, call: str) -> str:
    """Matches what the glob pattern does. Raises TaskDefinitionError for one that can't be read."""
    *directories, last = pattern.split("/")
    parts = [
        "(?:[^/]+/)*" if segment == "**" else f"{_segment(segment, call)}/"
        for segment in directories
    ]
    return "".join(parts) + (".+" if last == "**" else _segment(last, call))


def _segment(segment: str, call: str) -> str:
    if "**" in segment:
        raise TaskDefinitionError(
            f"{call}: '**' is only a part of the segment {segment!r}",
            fix=f"write '**' as a whole segment ('**/{segment.replace('**', '*')}'), or one '*'",
        )
    regex, position = "", 0
    while position < len(segment):
        char = segment[position]
        if char == "[":
            end = _class_end(segment, position, call)
            regex += _character_class(segment[position + 1 : end], call)
            position = end
        else:
            regex += {"*": "[^/]*", "?": "[^/]"}.get(char) or re.escape(char)
        position += 1
    return regex


def _class_end(segment: str, start: int, call: str) -> int:
    # As in every shell, a "]" right after "[" or "[!" is an ordinary member of the class.
    first = start + 2 if segment[start + 1 : start + 2] == "!" else start + 1
    end = segment.find("]", first + 1)
    if end < 0:
        raise TaskDefinitionError(
            f"{call}: '[' in {segment!r} is never closed",
            fix=f"close it with ']', or match the bracket itself: {segment.replace('[', '[[]')!r}",
        )
    return end


def _character_class(members: str, call: str) -> str:
    negated = members.startswith("!")
    listed = _SPECIAL_IN_CLASS.sub(r"\\\1", members.removeprefix("!"))
    if listed.startswith("]"):
        listed = f"\\{listed}"
    # A separator is never matched by a wildcard, so not by a negated class either.
    regex = f"(?!/)[{'^' if negated else ''}{listed}]"
    try:
        re.compile(regex)
    except re.error as error:
        raise TaskDefinitionError(
            f"{call}: the character class [{members}] can't be read: {error.msg}",
            fix="write ranges from the lower to the higher character, such as [a-z]",
        ) from None
    return regex


def _nearest(path: str) -> str:
    kept = [segment for segment in path.split("/") if problem_with(segment) is None]
    return "/".join(kept) or "raw/songs.jsonl"
