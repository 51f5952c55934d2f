"""Guardrails on data, checked by Spark: exact, and with as few passes as by hand.

Knows DataFrames only, so it is the same for a local session, a cluster and Spark Connect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perago.adapters.spark.checks.tables import Read
    from perago.model.tables import TableReport, TableRules, TableSource


def check_tables(
    tables: Sequence[TableRules], read: Read, sources: Mapping[str, TableSource] | None = None
) -> list[TableReport]:
    """What the rules find, a report for each; ``read(source)`` gives a table's DataFrame.

    ``sources`` says how tables are read that others refer to; unless given, these rules do.
    Rules on the same table share one pass over its rows; each key of ``unique`` and each of
    ``references`` is one shuffle more. Files that are missing or can't be read, and rules that
    can't be evaluated, are findings; raises whatever else keeps Spark from computing.
    """
    from perago.adapters.spark.checks.tables import check_each_table

    if sources is None:
        sources = {rules.path: rules.source for rules in tables}
    return check_each_table(tables, read, sources)


def check_table(rules: TableRules, read: Read) -> TableReport:
    """The report of one; otherwise as :func:`check_tables`."""
    return check_tables([rules], read)[0]
