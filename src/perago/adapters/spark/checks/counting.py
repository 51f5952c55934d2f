"""Everything that is told of rows one by one, counted in one aggregate over the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as sf

from perago.adapters.spark.checks import fingerprint
from perago.adapters.spark.failures import is_of_expression
from perago.model.tables import NotNullRule, RowsRule, WhereRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from perago.adapters.spark.checks.columns import OpenTable

_HASH = "perago row hash"

RowRule: TypeAlias = RowsRule | NotNullRule | WhereRule


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows there are, how many break each rule, and which rules couldn't be evaluated."""

    rows: int
    bad: dict[RowRule, int] = field(default_factory=dict)
    failed: dict[RowRule, Exception] = field(default_factory=dict)
    fingerprint: str | None = None


def count_rows(table: OpenTable, rules: Sequence[RowRule], *, with_fingerprint: bool) -> Counts:
    """One pass, or none of the rules would be exact about the same rows.

    A condition that fails on some row fails the whole pass; then, and only then, every condition
    gets one of its own.
    """
    try:
        return _one_pass(table, rules, with_fingerprint=with_fingerprint)
    except Exception as error:
        conditions = [rule for rule in rules if isinstance(rule, WhereRule)]
        if not conditions or not is_of_expression(error):
            raise
    others = [rule for rule in rules if not isinstance(rule, WhereRule)]
    counts = _one_pass(table, others, with_fingerprint=with_fingerprint)
    for rule in conditions:
        try:
            counts.bad.update(_one_pass(table, [rule], with_fingerprint=False).bad)
        except Exception as error:
            if not is_of_expression(error):
                raise
            counts.failed[rule] = error
    return counts


def is_bad(table: OpenTable, rule: NotNullRule | WhereRule) -> Column:
    """Whether a row breaks the rule: never null."""
    if isinstance(rule, NotNullRule):
        return table.column(rule.name).isNull()
    return ~sf.coalesce(sf.expr(rule.condition), sf.lit(False))  # noqa: FBT003 - a SQL literal


def _one_pass(table: OpenTable, rules: Sequence[RowRule], *, with_fingerprint: bool) -> Counts:
    counted = [rule for rule in rules if not isinstance(rule, RowsRule)]
    wanted = {"rows": sf.count(sf.lit(1))}
    wanted |= {f"bad{n}": sf.count_if(is_bad(table, rule)) for n, rule in enumerate(counted)}
    frame = table.frame
    if with_fingerprint:
        frame = frame.withColumn(_HASH, fingerprint.row_hash(table.schema))
        wanted |= fingerprint.sums(sf.col(_HASH))
    aggregates = [value.alias(name) for name, value in wanted.items()]
    found: dict[str, int] = frame.agg(*aggregates).collect()[0].asDict()
    return Counts(
        rows=found["rows"],
        bad={rule: found[f"bad{n}"] for n, rule in enumerate(counted)},
        fingerprint=(
            fingerprint.digest(table.schema, found["rows"], found) if with_fingerprint else None
        ),
    )
