"""What must hold of a workspace before and after a task, and the check of what names can tell.

Paths are relative to the workspace's prefix. Only files count: a directory is there when a file
lies below it, because empty directories are not part of a workspace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeAlias

from perago.declare.patterns import as_text, checked_path, regex_below, regex_of_file, regex_of_glob
from perago.errors import PostGuardrailViolation, PreGuardrailViolation, TaskDefinitionError
from perago.model.tables import TableRules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from os import PathLike

    from perago.errors import GuardrailViolation

Phase: TypeAlias = Literal["pre", "post"]

_SHOWN_NAMES = 3


@dataclass(frozen=True, slots=True)
class FileGuardrail:
    """How many files may match a pattern. ``label`` is what the user wrote."""

    label: str
    pattern: str
    regex: str
    min_count: int
    max_count: int | None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.pattern,)

    @property
    def always_holds(self) -> bool:
        """Whether no workspace could violate it."""
        return self.min_count == 0 and self.max_count is None


Guardrail: TypeAlias = FileGuardrail | TableRules
"""Any guardrail. Those on tables look into the data, which takes Spark."""


def require_file(path: str | PathLike[str]) -> FileGuardrail:
    """This very file is there. Special characters in its name mean themselves."""
    written = as_text(path)
    call = f"require_file({written!r})"
    checked = checked_path(written, call)
    return FileGuardrail(call, checked, regex_of_file(checked), 1, None)


def require_dir(path: str | PathLike[str]) -> FileGuardrail:
    """At least one file lies below this directory, at any depth."""
    written = as_text(path)
    call = f"require_dir({written!r})"
    checked = checked_path(written, call)
    return FileGuardrail(call, f"{checked}/**", regex_below(checked), 1, None)


def require_glob(
    pattern: str | PathLike[str], *, min_count: int = 1, max_count: int | None = None
) -> FileGuardrail:
    """Between ``min_count`` and ``max_count`` files match the pattern."""
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


def violations(guardrails: Iterable[Guardrail], paths: Iterable[str]) -> list[str]:
    """One sentence per violated guardrail on files, in their order; empty if all hold."""
    listing = paths if isinstance(paths, (list, tuple)) else list(paths)
    on_files = [guardrail for guardrail in guardrails if isinstance(guardrail, FileGuardrail)]
    return [sentence for guardrail in on_files if (sentence := _violation(guardrail, listing))]


def check(guardrails: Sequence[Guardrail], paths: Iterable[str], phase: Phase) -> None:
    """Raise Pre- or PostGuardrailViolation, naming every violated one on files; else do nothing."""
    if guardrails and (sentences := violations(guardrails, paths)):
        raise violated(sentences, phase)


def violated(sentences: Sequence[str], phase: Phase) -> GuardrailViolation:
    """The error for violations, each told by one of the sentences."""
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
    """What lies in the deepest directory of the pattern that has any file at all."""
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
