"""Paths that a Spark task names, relative to its prefix."""

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


# --- Which formats a workspace can hold, and which one a table is in ---
FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "delta")
_SUFFIXES = {
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


def checked_format(name: str) -> str:
    """Raises SparkPathError, with the reason, for one that can't be kept in a workspace."""
    plain = name.lower()
    if plain in FORMATS:
        return plain
    known = ", ".join(FORMATS)
    reason = "its files name each other by absolute paths, and those are gone after publishing"
    raise SparkPathError(
        f"format {name!r} can't be kept in a workspace"
        + (f": {reason}" if plain in ("iceberg", "hudi") else ""),
        fix=f"use one of {known}",
    )


def table_reader(
    session: SparkSession, kind: str, options: Iterable[tuple[str, str]] = ()
) -> DataFrameReader:
    """A reader of whole tables: of all columns that any file has, not those of a file at random."""
    merging = {"mergeSchema": "true"} if kind in ("parquet", "orc") else {}
    return session.read.format(kind).options(**merging).options(**dict(options))


def format_of(path: str, files: Iterable[str]) -> str:
    """The format of the table at ``path``, told from its files' names (relative to the prefix).

    Raises SparkPathError if there are no files, or if their names show no single format.
    """
    found: set[str | None] = set()
    for file in files:
        below = file.removeprefix(path).lstrip("/")
        if below.startswith("_delta_log/"):
            return "delta"
        name = file.rpartition("/")[2]
        if not name.startswith(("_", ".")):
            suffix = _COMPRESSED.sub("", name.lower()).rpartition(".")[2]
            found.add(_SUFFIXES.get(suffix))
    if not found:
        raise SparkPathError(
            f"there is no table {path!r}: no file lies below it",
            fix="correct the path, or have an earlier task write it",
        )
    only = found.pop() if len(found) == 1 else None
    if only is None:
        raise SparkPathError(
            f"the names of the files below {path!r} don't tell one format",
            fix=f"say it: format='parquet', or another one of {', '.join(FORMATS)}",
        )
    return only


# --- Which of the files that Spark leaves are no part of a table, and which can't be kept ---
SUCCESS_NAME = "_SUCCESS"
_LEFTOVER = re.compile(
    r"(^|/)(_temporary|__magic[^/]*|\.spark-staging-[^/]*)(/|$)"  # a job's own scratch room
    r"|(^|/)\.[^/]*\.crc$"  # a checksum of a local file
)
_WRITE_OTHERS = "write Parquet, ORC, JSON, CSV, text, Avro or Delta"
_PATH_BOUND = (
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


def is_scratch(path: str) -> bool:
    """Whether nothing at this path, or below, is ever published."""
    return bool(_LEFTOVER.search(path))


def is_leftover(path: str, *, keep_success: bool) -> bool:
    """Whether it is to go before anything is committed."""
    is_success = path.rpartition("/")[2] == SUCCESS_NAME
    return is_scratch(path) or (is_success and not keep_success)


def assert_storable(path: str) -> None:
    """Raises UnsupportedFileError for a file that wouldn't be what it is under another name."""
    if problem := problem_with(path):
        raise UnsupportedFileError(
            f"{path!r}: {problem}", fix="have the task write files with portable names"
        )
    for pattern, what, fix in _PATH_BOUND:
        if pattern.search(path):
            raise UnsupportedFileError(
                f"{path!r} is {what}, whose files name each other by absolute paths: those lead "
                "to the staging area, which is gone after publishing",
                fix=fix,
            )


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
