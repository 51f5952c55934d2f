"""Which formats a workspace can hold, and which one a table is in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from perago.errors import SparkPathError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrameReader, SparkSession

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


def complete_reader(
    session: SparkSession, kind: str, options: Iterable[tuple[str, str]] = ()
) -> DataFrameReader:
    """A reader of whole tables: of all columns that any file has, not those of a file at random."""
    merging = {"mergeSchema": "true"} if kind in ("parquet", "orc") else {}
    return session.read.format(kind).options(**merging).options(**dict(options))


def format_of(path: str, files: Iterable[str]) -> str:
    """The format of the table at ``path``, told from its files' names (relative to the prefix).

    Raises SparkPathError if there are no files, or if they don't tell.
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
