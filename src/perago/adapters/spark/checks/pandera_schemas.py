"""A pandera schema checked at full depth, and its report in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perago.errors import RuntimeConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame


def schema_problems(schema: Any, frame: DataFrame) -> list[str]:
    """What is wrong, without any value of the data; empty if the schema holds.

    Raises RuntimeConfigError if pandera can't be used here.
    """
    try:
        from pandera.config import ValidationDepth, config_context
    except ImportError as error:
        raise RuntimeConfigError(
            f"schema=… needs pandera, which can't be imported: {error}",
            fix="install perago-runtime[pandera]",
        ) from error
    # Whatever the environment says: a guardrail that looks at names only would be none.
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        validated = schema.validate(frame)
    return [problem for group in validated.pandera.errors.values() for problem in _told(group)]


def _told(group: Mapping[str, list[Mapping[str, Any]]]) -> Iterator[str]:
    for reason, errors in group.items():
        for error in errors:
            column, check = error["column"], error["check"]
            if reason == "COLUMN_NOT_IN_DATAFRAME":
                yield f"there is no column {column!r}"
            elif reason == "SERIES_CONTAINS_NULLS":
                yield f"{column!r} has nulls"
            elif reason in ("WRONG_DATATYPE", "DUPLICATES"):
                # These messages name types, columns and counts; others may quote rows.
                yield str(error["error"])
            else:
                yield f"{column!r} fails {check}"
