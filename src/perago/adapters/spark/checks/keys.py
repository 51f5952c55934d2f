"""Keys: which occur more than once, and which have no partner in another table."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as sf

from perago.adapters.spark.checks.columns import are_comparable
from perago.adapters.spark.checks.samples import counted, frequent_keys

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from perago.adapters.spark.checks.columns import OpenTable
    from perago.model.tables import ReferenceRule, UniqueRule

Broken: TypeAlias = tuple[str, int | None, tuple[str, ...]]
"""What is wrong in words, on how many rows, and some of them."""


def repeated(table: OpenTable, rule: UniqueRule, *, hide: bool) -> Broken | None:
    """The keys that occur more than once; None if none does. One shuffle, of the keys alone."""
    keys = _counted(_keys(table, rule.columns, "k"), rule).where("rows > 1")
    repeats, rows = keys.agg(sf.count(sf.lit(1)), sf.sum("rows")).collect()[0]
    if not repeats:
        return None
    samples = frequent_keys(keys, table, rule.columns, hide=hide)
    occur = "occurs" if repeats == 1 else "occur"
    said = f"{counted(repeats, 'key')} {occur} more than once, on {counted(rows, 'row')}"
    return said, rows, samples


def orphaned(
    table: OpenTable, other: OpenTable, rule: ReferenceRule, *, hide: bool
) -> Broken | None:
    """The keys without a null that the other table hasn't; None if there are none. One join."""
    keys = _keys(table, rule.columns, "k")
    for n in range(len(rule.columns)):
        keys = keys.where(sf.col(f"k{n}").isNotNull())
    partners = _keys(other, rule.targets, "p")
    equal = [sf.col(f"k{n}") == sf.col(f"p{n}") for n in range(len(rule.columns))]
    orphans = keys.join(partners, equal, "left_anti")
    count = orphans.count()
    if not count:
        return None
    samples = frequent_keys(_counted(orphans, rule), table, rule.columns, hide=hide)
    have = "has" if count == 1 else "have"
    return f"{counted(count, 'row')} {have} no partner in {rule.path!r}", count, samples


def incomparable(table: OpenTable, other: OpenTable, rule: ReferenceRule) -> str | None:
    """Why the two sides of a reference can't be compared exactly; None if they can."""
    for name, target in zip(rule.columns, rule.targets, strict=True):
        here, there = table.type_of(name), other.type_of(target)
        if here and there and not are_comparable(here, there):
            return f"{name!r} is {here}, and {target!r} in {rule.path!r} is {there}"
    return None


def _keys(table: OpenTable, names: tuple[str, ...], prefix: str) -> DataFrame:
    return table.frame.select(
        *(table.column(name).alias(f"{prefix}{n}") for n, name in enumerate(names))
    )


def _counted(keys: DataFrame, rule: UniqueRule | ReferenceRule) -> DataFrame:
    names = [f"k{n}" for n in range(len(rule.columns))]
    return keys.groupBy(*names).agg(sf.count(sf.lit(1)).alias("rows"))
