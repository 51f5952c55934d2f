"""Paths that a Spark task names, relative to its prefix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perago.adapters.spark.leftovers import is_scratch
from perago.declare.patterns import SPARK_WILDCARD
from perago.errors import SparkPathError, UnsupportedFileError
from perago.model.commit import ACTIONS_PREFIX
from perago.model.keys import problem_with

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGN = re.compile(r"\{([^{}]*)\}|\[([^\]]+)\]|.", re.DOTALL)


def readable(path: str, *, at_root: bool) -> str:
    """A path to read, "" for the whole workspace. Raises SparkPathError."""
    return _checked(path.removesuffix("/"), at_root=at_root) if path else ""


def writable(path: str, *, at_root: bool) -> str:
    """A path to write a table to. Raises SparkPathError."""
    if SPARK_WILDCARD.search(path):
        raise _refused(path, "it has a wildcard, and a table is written to one place")
    if is_scratch(path):
        raise _refused(path, "Spark keeps a job's scratch files under such a name")
    return _checked(path.removesuffix("/"), at_root=at_root)


def without_wildcards(path: str) -> str:
    """The deepest directory, or the file, that all matches of a path have in common."""
    if not (found := SPARK_WILDCARD.search(path)):
        return path
    return path[: found.start()].rpartition("/")[0]


def is_match(path: str, wanted: str) -> bool:
    """Whether a file is, or lies below, what a path with Hadoop's wildcards stands for."""
    return re.fullmatch(f"{_regex_of(wanted)}(?:/.*)?", path, re.DOTALL) is not None


def is_below(path: str, directory: str) -> bool:
    """Whether it is that directory, or something in it; everything is below ""."""
    return not directory or path == directory or path.startswith(f"{directory}/")


def above(path: str) -> Iterator[str]:
    """The directories that a path lies in, from the top on."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def below_a_file(path: str, file: str) -> SparkPathError:
    """The error for an output that no directory could ever hold beside a file of the workspace."""
    return SparkPathError(
        f"output {path!r} would lie below {file!r}, which is a file of the workspace",
        fix="write to another path, or have the file removed by a task of its own",
    )


def beside_outputs(path: str) -> UnsupportedFileError:
    """The error for something that was written where no output was asked for."""
    return UnsupportedFileError(
        f"{path!r} was written, and lies below no output that was asked for",
        fix="write to ws.output(…) only, and ask it for every table: nothing is to be put behind "
        "its answer but '/…'",
    )


def read_only(path: str) -> SparkPathError:
    """The error for an output that would never be published."""
    return SparkPathError(
        f"output {path!r} was asked for in a read_only task, which publishes nothing",
        fix="take read_only=True out of its WorkspaceSpec, or don't write",
    )


def _checked(path: str, *, at_root: bool) -> str:
    problem = problem_with(path)
    if "://" in path or path.startswith("file:"):
        problem = "it is an address; ws.input(…) and ws.output(…) make one of a path"
    elif "\\" in path:
        problem = "it has a backslash, which is no separator in a workspace"
    elif at_root and f"{path.split('/', maxsplit=1)[0]}/" == ACTIONS_PREFIX:
        problem = f"{ACTIONS_PREFIX} holds the repository's hooks, never a workspace"
    if problem:
        raise _refused(path, problem)
    return path


def _regex_of(wanted: str) -> str:
    def regex(sign: re.Match[str]) -> str:
        choices, characters = sign.groups()
        if choices is not None:
            return f"(?:{'|'.join(map(_regex_of, choices.split(',')))})"
        if characters is not None:
            return f"[{re.sub('^!', '^', characters)}]"
        return {"*": "[^/]*", "?": "[^/]"}.get(sign[0], re.escape(sign[0]))

    return _SIGN.sub(regex, wanted)


def _refused(path: str, problem: str) -> SparkPathError:
    return SparkPathError(
        f"path {path!r} can't be a part of the workspace: {problem}",
        fix="give a path relative to the task's prefix, such as 'clean'",
    )
