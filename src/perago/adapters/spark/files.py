"""The files of a Spark workspace: paths that a task may name, their formats, what is published.

Paths are relative to the task's prefix.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perago.declare.guardrails import SPARK_WILDCARD
from perago.errors import SparkPathError, UnsupportedFileError
from perago.model.commit import ACTIONS_PREFIX
from perago.model.workspace import problem_with

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrameReader, SparkSession

FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "delta")
SUCCESS_NAME = "_SUCCESS"
_FORMAT_OF_SUFFIX = {
    "parquet": "parquet",
    "orc": "orc",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "csv": "csv",
    "txt": "text",
    "text": "text",
    "avro": "avro",
}
_COMPRESSED = re.compile(r"\.(gz|gzip|bz2|zst|zstd|lz4|snappy|deflate|xz)$")
_SCRATCH = re.compile(
    r"(^|/)(_temporary|__magic[^/]*|\.spark-staging-[^/]*)(/|$)"  # a job's scratch directory
    r"|(^|/)\.[^/]*\.crc$"  # the checksum of a local file
)
_WRITE_OTHERS = "write Parquet, ORC, JSON, CSV, text, Avro or Delta"
_WITH_ABSOLUTE_PATHS = (
    (
        re.compile(r"(^|/)metadata/[^/]*\.metadata\.json$"),
        "part of a table in the format Iceberg",
        _WRITE_OTHERS,
    ),
    (re.compile(r"(^|/)\.hoodie/"), "part of a table in the format Hudi", _WRITE_OTHERS),
    (
        re.compile(r"(^|/)_spark_metadata/"),
        "the log of a streaming query's file sink",
        "write each batch by itself: writeStream.foreachBatch(…)",
    ),
)
_GLOB_TOKEN = re.compile(r"\{([^{}]*)\}|\[([^\]]+)\]|.", re.DOTALL)


def input_path(path: str, *, at_root: bool) -> str:
    """Check a path to read, "" for the whole workspace. Raises SparkPathError."""
    return _checked(path.removesuffix("/"), at_root=at_root) if path else ""


def output_path(path: str, *, at_root: bool) -> str:
    """Check a path to write a table to. Raises SparkPathError."""
    if SPARK_WILDCARD.search(path):
        raise _refused(path, "it has a wildcard, and a table is written to one place")
    if is_scratch(path):
        raise _refused(path, "Spark keeps a job's scratch files under such a name")
    return _checked(path.removesuffix("/"), at_root=at_root)


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


def _refused(path: str, problem: str) -> SparkPathError:
    return SparkPathError(
        f"path {path!r} can't be a part of the workspace: {problem}",
        fix="give a path relative to the task's prefix, such as 'clean'",
    )


def is_below(path: str, directory: str) -> bool:
    """Whether it is that directory, or something in it; everything is below ""."""
    return not directory or path == directory or path.startswith(f"{directory}/")


def parents(path: str) -> Iterator[str]:
    """Yield the directories that a path lies in, from the top."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def without_wildcards(path: str) -> str:
    """Return the deepest directory, or the file, that all matches of a path have in common."""
    if not (found := SPARK_WILDCARD.search(path)):
        return path
    return path[: found.start()].rpartition("/")[0]


def is_match(path: str, pattern: str) -> bool:
    """Whether a file matches a path with Hadoop's wildcards, or lies below a match."""
    return re.fullmatch(f"{_regex_of(pattern)}(?:/.*)?", path, re.DOTALL) is not None


def _regex_of(pattern: str) -> str:
    def regex(token: re.Match[str]) -> str:
        choices, characters = token.groups()
        if choices is not None:
            return f"(?:{'|'.join(map(_regex_of, choices.split(',')))})"
        if characters is not None:
            return f"[{re.sub('^!', '^', characters)}]"
        return {"*": "[^/]*", "?": "[^/]"}.get(token[0], re.escape(token[0]))

    return _GLOB_TOKEN.sub(regex, pattern)


def checked_format(name: str) -> str:
    """Return the format in lower case. Raises SparkPathError if a workspace can't hold it."""
    plain = name.lower()
    if plain in FORMATS:
        return plain
    known = ", ".join(FORMATS)
    reason = "its files refer to each other by absolute paths, which change on publishing"
    raise SparkPathError(
        f"format {name!r} can't be kept in a workspace"
        + (f": {reason}" if plain in ("iceberg", "hudi") else ""),
        fix=f"use one of {known}",
    )


def format_of(path: str, files: Iterable[str]) -> str:
    """Return the format of the table at ``path``, as the names of its ``files`` show it.

    Raises SparkPathError if there are no files, or if their names don't show one format.
    """
    found: set[str | None] = set()
    for file in files:
        below = file.removeprefix(path).lstrip("/")
        if below.startswith("_delta_log/"):
            return "delta"
        name = file.rpartition("/")[2]
        if not name.startswith(("_", ".")):
            suffix = _COMPRESSED.sub("", name.lower()).rpartition(".")[2]
            found.add(_FORMAT_OF_SUFFIX.get(suffix))
    if not found:
        raise SparkPathError(
            f"there is no table {path!r}: no file lies below it",
            fix="correct the path, or have an earlier task write it",
        )
    only = found.pop() if len(found) == 1 else None
    if only is None:
        raise SparkPathError(
            f"the names of the files below {path!r} don't show one format",
            fix=f"name it: format='parquet', or another one of {', '.join(FORMATS)}",
        )
    return only


def table_reader(
    session: SparkSession, kind: str, options: Iterable[tuple[str, str]] = ()
) -> DataFrameReader:
    """Return a reader of all columns that any file has, not only those of one file."""
    merging = {"mergeSchema": "true"} if kind in ("parquet", "orc") else {}
    return session.read.format(kind).options(**merging).options(**dict(options))


def is_scratch(path: str) -> bool:
    """Whether nothing at this path, or below, is ever published."""
    return bool(_SCRATCH.search(path))


def is_leftover(path: str, *, keep_success: bool) -> bool:
    """Whether the file is removed before anything is committed."""
    is_success = path.rpartition("/")[2] == SUCCESS_NAME
    return is_scratch(path) or (is_success and not keep_success)


def assert_storable(path: str) -> None:
    """Raise UnsupportedFileError for a file that can't be published or is useless elsewhere."""
    if problem := problem_with(path):
        raise UnsupportedFileError(
            f"{path!r}: {problem}", fix="have the task write files with portable names"
        )
    for pattern, what, fix in _WITH_ABSOLUTE_PATHS:
        if pattern.search(path):
            raise UnsupportedFileError(
                f"{path!r} is {what}, whose files refer to each other by absolute paths: those "
                "lead to the staging area, which is removed after publishing",
                fix=fix,
            )


def below_file_error(path: str, file: str) -> SparkPathError:
    """Return the error for an output below a file of the workspace."""
    return SparkPathError(
        f"output {path!r} would lie below {file!r}, which is a file of the workspace",
        fix="write to another path, or have a task of its own remove the file",
    )


def outside_outputs_error(path: str) -> UnsupportedFileError:
    """Return the error for a file that the body wrote outside of its outputs."""
    return UnsupportedFileError(
        f"{path!r} was written, but lies below no path that ws.output(…) returned",
        fix="call ws.output(…) for every table, and append nothing to what it returns but '/…'",
    )


def read_only_error(path: str) -> SparkPathError:
    """Return the error for an output of a task that publishes nothing."""
    return SparkPathError(
        f"output {path!r} was asked for in a read_only task, which publishes nothing",
        fix="take read_only=True out of its WorkspaceSpec, or don't write",
    )
