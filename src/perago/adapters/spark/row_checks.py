"""Checks of a table's rows: counts of bad rows in one pass, then repeated and orphaned keys.

All of them are exact. Counting makes one aggregate over the table; each key is one shuffle more.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from perago.adapters.spark import fingerprint
from perago.adapters.spark.error_text import is_expression_error
from perago.adapters.spark.fingerprint import quoted
from perago.model.declaration import did_you_mean
from perago.model.tables import NotNullRule, RowsRule, WhereRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from perago.model.tables import ReferenceRule, UniqueRule

RowRule: TypeAlias = RowsRule | NotNullRule | WhereRule
_HASH_COLUMN = "perago row hash"
_COMPARABLE = ({"tinyint", "smallint", "int", "bigint", "decimal"}, {"float", "double"})
"""Families of types that Spark compares with each other without changing a value."""
_SAMPLE_ROWS = 3
_SAMPLE_COLUMNS = 6
_SAMPLE_CHARACTERS = 40
_HIDDEN = "…"


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A DataFrame with its schema, read once: over Spark Connect that is a request."""

    frame: DataFrame
    schema: StructType

    @classmethod
    def of(cls, frame: DataFrame) -> OpenTable:
        return cls(frame, frame.schema)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.schema.fields]

    def type_of(self, name: str) -> str | None:
        """Return the type as Spark writes it; None if there is no such column."""
        found = self._find(name)
        return found[1].simpleString() if found else None

    def column(self, name: str) -> Column:
        """Return a column that exists."""
        found = self._find(name)
        assert found is not None  # noqa: S101 - checked before
        return sf.col(".".join(quoted(part) for part in found[0]))

    def missing(self, name: str) -> str | None:
        """Return a sentence that there is no such column; None if there is one."""
        if self._find(name):
            return None
        return f"there is no column {name!r}; {did_you_mean(name, self.names)}"

    def _find(self, name: str) -> tuple[tuple[str, ...], DataType] | None:
        """Find a column, or else a field inside of one: ``song.title``."""
        parts = (name,) if name in self.names else tuple(name.split("."))
        kind: DataType = self.schema
        for part in parts:
            if not isinstance(kind, StructType) or part not in kind.names:
                return None
            kind = kind[part].dataType
        return parts, kind


@dataclass(frozen=True, slots=True)
class Violation:
    """How a rule is broken, in words; on how many rows, if that is known; and some of them."""

    problem: str
    count: int | None = None
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows there are, how many break each rule, and which rules couldn't be evaluated."""

    rows: int
    bad: dict[RowRule, int] = field(default_factory=dict)
    failed: dict[RowRule, Exception] = field(default_factory=dict)
    fingerprint: str | None = None


def count_rows(table: OpenTable, rules: Sequence[RowRule], *, with_fingerprint: bool) -> Counts:
    """Count everything in one pass, so that all rules see the same rows.

    A condition that fails on some row fails the whole pass; only then every condition gets a pass
    of its own.
    """
    try:
        return _one_pass(table, rules, with_fingerprint=with_fingerprint)
    except Exception as error:
        conditions = [rule for rule in rules if isinstance(rule, WhereRule)]
        if not conditions or not is_expression_error(error):
            raise
    others = [rule for rule in rules if not isinstance(rule, WhereRule)]
    counts = _one_pass(table, others, with_fingerprint=with_fingerprint)
    for rule in conditions:
        try:
            counts.bad.update(_one_pass(table, [rule], with_fingerprint=False).bad)
        except Exception as error:
            if not is_expression_error(error):
                raise
            counts.failed[rule] = error
    return counts


def _one_pass(table: OpenTable, rules: Sequence[RowRule], *, with_fingerprint: bool) -> Counts:
    counted = [rule for rule in rules if not isinstance(rule, RowsRule)]
    wanted = {"rows": sf.count(sf.lit(1))}
    wanted |= {f"bad{n}": sf.count_if(is_bad(table, rule)) for n, rule in enumerate(counted)}
    frame = table.frame
    if with_fingerprint:
        frame = frame.withColumn(_HASH_COLUMN, fingerprint.row_hash(table.schema))
        wanted |= fingerprint.sums(sf.col(_HASH_COLUMN))
    aggregates = [value.alias(name) for name, value in wanted.items()]
    found: dict[str, int] = frame.agg(*aggregates).collect()[0].asDict()
    return Counts(
        rows=found["rows"],
        bad={rule: found[f"bad{n}"] for n, rule in enumerate(counted)},
        fingerprint=(
            fingerprint.digest(table.schema, found["rows"], found) if with_fingerprint else None
        ),
    )


def is_bad(table: OpenTable, rule: NotNullRule | WhereRule) -> Column:
    """Return whether a row breaks the rule: never null."""
    if isinstance(rule, NotNullRule):
        return table.column(rule.name).isNull()
    return ~sf.coalesce(sf.expr(rule.condition), sf.lit(False))  # noqa: FBT003 - a SQL literal


def repeated_keys(table: OpenTable, rule: UniqueRule, *, hide: bool) -> Violation | None:
    """Find keys that occur more than once. One shuffle, of the keys alone."""
    keys = _count_keys(_keys(table, rule.columns, "k"), rule).where("rows > 1")
    repeats, rows = keys.agg(sf.count(sf.lit(1)), sf.sum("rows")).collect()[0]
    if not repeats:
        return None
    occur = "occurs" if repeats == 1 else "occur"
    problem = f"{counted(repeats, 'key')} {occur} more than once, on {counted(rows, 'row')}"
    return Violation(problem, rows, _frequent_keys(keys, table, rule.columns, hide=hide))


def orphaned_keys(
    table: OpenTable, other: OpenTable, rule: ReferenceRule, *, hide: bool
) -> Violation | None:
    """Find keys, without a null in them, that the other table doesn't have. One join."""
    keys = _keys(table, rule.columns, "k")
    for n in range(len(rule.columns)):
        keys = keys.where(sf.col(f"k{n}").isNotNull())
    partners = _keys(other, rule.targets, "p")
    equal = [sf.col(f"k{n}") == sf.col(f"p{n}") for n in range(len(rule.columns))]
    orphans = keys.join(partners, equal, "left_anti")
    count = orphans.count()
    if not count:
        return None
    have = "has" if count == 1 else "have"
    samples = _frequent_keys(_count_keys(orphans, rule), table, rule.columns, hide=hide)
    return Violation(f"{counted(count, 'row')} {have} no partner in {rule.path!r}", count, samples)


def incomparable(table: OpenTable, other: OpenTable, rule: ReferenceRule) -> str | None:
    """Say why the two sides of a reference can't be compared exactly; None if they can."""
    for name, target in zip(rule.columns, rule.targets, strict=True):
        here, there = table.type_of(name), other.type_of(target)
        if here and there and not _are_comparable(here, there):
            return f"{name!r} is {here}, and {target!r} in {rule.path!r} is {there}"
    return None


def _are_comparable(one: str, other: str) -> bool:
    """Whether Spark finds values of these types equal exactly if they are."""
    families = {one.partition("(")[0], other.partition("(")[0]}
    return one == other or any(families <= comparable for comparable in _COMPARABLE)


def _keys(table: OpenTable, names: tuple[str, ...], prefix: str) -> DataFrame:
    return table.frame.select(
        *(table.column(name).alias(f"{prefix}{n}") for n, name in enumerate(names))
    )


def _count_keys(keys: DataFrame, rule: UniqueRule | ReferenceRule) -> DataFrame:
    names = [f"k{n}" for n in range(len(rule.columns))]
    return keys.groupBy(*names).agg(sf.count(sf.lit(1)).alias("rows"))


def sample_rows(
    table: OpenTable, is_bad: Column, first: Sequence[str], *, hide: bool
) -> tuple[str, ...]:
    """Return some rows for which ``is_bad`` is true; of many columns, first those in ``first``."""
    names = [*first, *(name for name in table.names if name not in first)][:_SAMPLE_COLUMNS]
    types = [table.type_of(name) for name in names]
    shown = [
        _as_text(table.column(name), kind, hide=hide).alias(f"c{n}")
        for n, (name, kind) in enumerate(zip(names, types, strict=True))
    ]
    rows = table.frame.where(is_bad).select(*shown).limit(_SAMPLE_ROWS).collect()
    return tuple(_line(names, types, row, hide=hide) for row in rows)


def _frequent_keys(
    keys: DataFrame, table: OpenTable, names: Sequence[str], *, hide: bool
) -> tuple[str, ...]:
    """Return the keys with most rows. ``keys`` has columns ``k0``, ``k1`` … and ``rows``."""
    types = [table.type_of(name) for name in names]
    shown = [
        _as_text(sf.col(f"k{i}"), kind, hide=hide).alias(f"c{i}") for i, kind in enumerate(types)
    ]
    found = keys.orderBy(sf.desc("rows")).limit(_SAMPLE_ROWS).select(*shown, "rows").collect()
    return tuple(
        f"{_line(names, types, row[:-1], hide=hide)} on {counted(row[-1], 'row')}" for row in found
    )


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _as_text(value: Column, kind: str | None, *, hide: bool) -> Column:
    # Spark makes the text, so that neither long nor hidden values ever leave it.
    if hide:
        return sf.when(value.isNotNull(), sf.lit(_HIDDEN))
    text = sf.hex(value) if kind == "binary" else value.cast("string")
    return sf.substring(text, 1, _SAMPLE_CHARACTERS + 1)


def _line(
    names: Sequence[str], types: Sequence[str | None], values: Sequence[str | None], *, hide: bool
) -> str:
    parts = []
    for name, kind, value in zip(names, types, values, strict=True):
        if value is None:
            shown = "null"
        else:
            is_long = len(value) > _SAMPLE_CHARACTERS
            cut = f"{value[:_SAMPLE_CHARACTERS]}{_HIDDEN}" if is_long else value
            shown = repr(cut) if kind == "string" and not hide else cut
        parts.append(f"{name}={shown}")
    return ", ".join(parts)
