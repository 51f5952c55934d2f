"""Some of the rows that break a rule, as text short enough for a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from perago.adapters.spark.checks.columns import OpenTable

_ROWS = 3
_COLUMNS = 6
_CHARACTERS = 40
HIDDEN = "…"


def bad_rows(
    table: OpenTable, is_bad: Column, first: Sequence[str], *, hide: bool
) -> tuple[str, ...]:
    """Rows for which ``is_bad`` is true; of many columns, those named ``first`` and some more."""
    names = [*first, *(name for name in table.names if name not in first)][:_COLUMNS]
    types = [table.type_of(name) for name in names]
    shown = [
        _text(table.column(name), kind, hide=hide).alias(f"c{n}")
        for n, (name, kind) in enumerate(zip(names, types, strict=True))
    ]
    rows = table.frame.where(is_bad).select(*shown).limit(_ROWS).collect()
    return tuple(_line(names, types, row, hide=hide) for row in rows)


def frequent_keys(
    keys: DataFrame, table: OpenTable, names: Sequence[str], *, hide: bool
) -> tuple[str, ...]:
    """The keys with most rows. ``keys`` has them as ``k0``, ``k1`` …, and how many in ``rows``."""
    types = [table.type_of(name) for name in names]
    shown = [_text(sf.col(f"k{i}"), kind, hide=hide).alias(f"c{i}") for i, kind in enumerate(types)]
    found = keys.orderBy(sf.desc("rows")).limit(_ROWS).select(*shown, "rows").collect()
    return tuple(
        f"{_line(names, types, row[:-1], hide=hide)} on {counted(row[-1], 'row')}" for row in found
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _text(value: Column, kind: str | None, *, hide: bool) -> Column:
    # Made into text by Spark, so that neither long nor hidden values ever leave it.
    if hide:
        return sf.when(value.isNotNull(), sf.lit(HIDDEN))
    text = sf.hex(value) if kind == "binary" else value.cast("string")
    return sf.substring(text, 1, _CHARACTERS + 1)


def _line(
    names: Sequence[str], types: Sequence[str | None], values: Sequence[str | None], *, hide: bool
) -> str:
    parts = []
    for name, kind, value in zip(names, types, values, strict=True):
        if value is None:
            shown = "null"
        else:
            cut = value if len(value) <= _CHARACTERS else f"{value[:_CHARACTERS]}{HIDDEN}"
            shown = repr(cut) if kind == "string" and not hide else cut
        parts.append(f"{name}={shown}")
    return ", ".join(parts)
