"""Guardrails on the files of a workspace: their declaration, and the check of file names.

Paths are relative to the workspace's prefix. Only files count: a directory exists if a file is
below it, because empty directories are not part of a workspace.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias

from perago.errors import PostGuardrailViolation, PreGuardrailViolation, TaskDefinitionError
from perago.model.tables import TableRules
from perago.model.workspace import problem_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perago.errors import GuardrailViolation


SPARK_WILDCARD = re.compile(r"[*?\[\]{}]")
"""Characters that Spark's readers expand in a path."""
_SPECIAL_IN_CLASS = re.compile(r"([\[&~|\\^])")
Phase: TypeAlias = Literal["pre", "post"]
_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True, repr=False)
class FileGuardrail:
    """How many files may match a pattern. ``label`` is what the user wrote."""

    label: str
    pattern: str
    regex: str
    min_count: int
    max_count: int | None

    def __repr__(self) -> str:
        return self.label

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.pattern,)

    @property
    def always_holds(self) -> bool:
        """Whether no workspace can violate it."""
        return self.min_count == 0 and self.max_count is None


Guardrail: TypeAlias = FileGuardrail | TableRules
"""Any guardrail. Those on tables check the data, with Spark."""


def require_file(path: str | PathLike[str]) -> FileGuardrail:
    """This file exists. Wildcards in its name mean themselves."""
    written = as_text(path)
    call = f"require_file({written!r})"
    checked = checked_path(written, call)
    return FileGuardrail(call, checked, re.escape(checked), 1, None)


def require_dir(path: str | PathLike[str]) -> FileGuardrail:
    """At least one file is below this directory, at any depth."""
    written = as_text(path)
    call = f"require_dir({written!r})"
    checked = checked_path(written, call)
    return FileGuardrail(call, f"{checked}/**", f"{re.escape(checked)}/.+", 1, None)


def require_glob(
    pattern: str | PathLike[str], *, min_count: int = 1, max_count: int | None = None
) -> FileGuardrail:
    """Between ``min_count`` and ``max_count`` files match the pattern (None: any number)."""
    written = as_text(pattern)
    call = _glob_call(written, min_count, max_count)
    checked = checked_path(written, call)
    _check_counts(call, written, min_count, max_count)
    return FileGuardrail(call, checked, regex_of_glob(checked, call), min_count, max_count)


def forbid_glob(pattern: str | PathLike[str]) -> FileGuardrail:
    """No file matches the pattern."""
    written = as_text(pattern)
    call = f"forbid_glob({written!r})"
    checked = checked_path(written, call)
    return FileGuardrail(call, checked, regex_of_glob(checked, call), 0, 0)


def _glob_call(pattern: str, min_count: object, max_count: object) -> str:
    counts = f", min_count={min_count!r}" if min_count != 1 else ""
    counts += f", max_count={max_count!r}" if max_count is not None else ""
    return f"require_glob({pattern!r}{counts})"


def _check_counts(call: str, pattern: str, min_count: object, max_count: object) -> None:
    for name, count in (("min_count", min_count), ("max_count", max_count)):
        if name == "max_count" and count is None:
            continue
        if type(count) is not int or count < 0:
            raise TaskDefinitionError(
                f"{call}: {name} can't be {count!r}", fix=f"give {name} a whole number, 0 or more"
            )
    if isinstance(min_count, int) and isinstance(max_count, int) and min_count > max_count:
        raise TaskDefinitionError(
            f"{call}: min_count ({min_count}) is more than max_count ({max_count})",
            fix=f"write min_count={max_count}, max_count={min_count}, or leave one out"
            if max_count
            else f"write forbid_glob({pattern!r})",
        )


# --- Checking file names --------------------------------------------------------------------------


def violations(guardrails: Iterable[Guardrail], paths: Iterable[str]) -> list[str]:
    """A sentence for each violated guardrail on files; empty if all hold."""
    listing = paths if isinstance(paths, (list, tuple)) else list(paths)
    on_files = [guardrail for guardrail in guardrails if isinstance(guardrail, FileGuardrail)]
    return [sentence for guardrail in on_files if (sentence := _violation(guardrail, listing))]


def check(guardrails: Sequence[Guardrail], paths: Iterable[str], phase: Phase) -> None:
    """Raise Pre- or PostGuardrailViolation if any guardrail on files is violated."""
    if guardrails and (sentences := violations(guardrails, paths)):
        raise violated(sentences, phase)


def violated(sentences: Sequence[str], phase: Phase) -> GuardrailViolation:
    """The error for these violations, one sentence each."""
    message = f"{len(sentences)} {phase} guardrail(s) violated: {'; '.join(sentences)}"
    if phase == "pre":
        return PreGuardrailViolation(
            message, fix="correct the data, then start a new run from the corrected commit"
        )
    return PostGuardrailViolation(
        message, fix="correct the task's body so that it leaves these files, or the guardrail"
    )


def _violation(guardrail: FileGuardrail, paths: Sequence[str]) -> str | None:
    matches = re.compile(guardrail.regex, re.DOTALL).fullmatch
    matching = [path for path in paths if matches(path)]
    count, most = len(matching), guardrail.max_count
    if count < guardrail.min_count:
        found = _names(matching) if matching else _near_misses(guardrail.pattern, paths)
        needed = f"at least {guardrail.min_count} needed"
        return f"{guardrail.label}: {_files(count)} found, {needed} ({found})"
    if most is not None and count > most:
        allowed = f"at most {most} allowed" if most else "none allowed"
        return f"{guardrail.label}: {_files(count)} found, {allowed} ({_names(matching)})"
    return None


def _near_misses(pattern: str, paths: Sequence[str]) -> str:
    """The files in the deepest directory of the pattern that has any."""
    if not paths:
        return "the workspace is empty"
    literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    directory = literal.rpartition("/")[0]
    while directory:
        inside = [path for path in paths if path.startswith(f"{directory}/")]
        if inside:
            return f"{directory}/ has {_names(inside)}"
        directory = directory.rpartition("/")[0]
    return f"the workspace has {_names(paths)}"


def _names(paths: Sequence[str]) -> str:
    names = ", ".join(islice(paths, _SHOWN_NAMES))
    rest = len(paths) - _SHOWN_NAMES
    return f"{names} and {rest} more" if rest > 0 else names


def _files(count: int) -> str:
    return "1 file" if count == 1 else f"{count} files"


# --- Paths and glob patterns ----------------------------------------------------------------------


def as_text(path: str | PathLike[str]) -> str:
    """A path, of any type, as text with ``/``."""
    return path.as_posix() if isinstance(path, PurePath) else os.fspath(path)


def checked_path(path: str, call: str) -> str:
    """The path itself. Raises TaskDefinitionError if no file of a workspace can have it.

    ``call`` is what the user wrote, for the message.
    """
    if "\\" in path:
        raise TaskDefinitionError(
            f"{call}: {path!r} has a backslash, and a workspace's separator is '/'",
            fix=f"write {path.replace(chr(92), '/')!r}",
        )
    if problem := problem_with(path):
        raise TaskDefinitionError(
            f"{call}: {path!r} can't match any file below the prefix: {problem}",
            fix=f"write a path relative to the workspace's prefix, such as {_nearest(path)!r}",
        )
    return path


def regex_of_glob(pattern: str, call: str) -> str:
    """The pattern as a regular expression. Raises TaskDefinitionError for a malformed one."""
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
    # As in shells, a "]" right after "[" or "[!" is a member of the class.
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
    # Like a wildcard, a negated class doesn't match a separator.
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
