"""Which of the files that Spark leaves are no part of a table, and which can't be kept."""

from __future__ import annotations

import re

from perago.errors import UnsupportedFileError
from perago.model.keys import problem_with

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
