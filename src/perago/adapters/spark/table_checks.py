"""The check of tables, in the order of what it costs: schema, one pass over rows, keys, pandera."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import functions as sf

from perago.adapters.spark.error_text import (
    condition_name,
    is_expression_error,
    is_file_error,
    short_message,
)
from perago.adapters.spark.fingerprint import unhashable
from perago.adapters.spark.row_checks import (
    Broken,
    Counts,
    OpenTable,
    RowRule,
    bad_rows,
    count_rows,
    counted,
    incomparable,
    is_bad,
    orphaned,
    repeated,
)
from perago.errors import RuntimeConfigError, SparkPathError
from perago.model.tables import (
    ColumnRule,
    NotNullRule,
    ReferenceRule,
    RowsRule,
    Rule,
    RuleResult,
    SchemaRule,
    TableReport,
    TableRules,
    TableSource,
    UniqueRule,
    WhereRule,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame


# --- A pandera schema checked at full depth, and its report in few words ---


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


Read: TypeAlias = Callable[[TableSource], "DataFrame"]


def check_each_table(
    tables: Sequence[TableRules], read: Read, sources: Mapping[str, TableSource]
) -> list[TableReport]:
    """See :func:`perago.adapters.spark.table_checks.check_tables`."""
    reports: dict[int, TableReport] = {}
    for group in _by_table(tables):
        try:
            found = _check_one_table(group, sources, read)
        except Exception as error:  # noqa: BLE001 - raised again if it isn't the files' fault
            found = [_unreadable(rules, error) for rules in group]
        reports |= {id(rules): report for rules, report in zip(group, found, strict=True)}
    return [reports[id(rules)] for rules in tables]


def _by_table(tables: Iterable[TableRules]) -> Iterable[list[TableRules]]:
    groups: dict[TableSource, list[TableRules]] = {}
    for rules in tables:
        groups.setdefault(rules.source, []).append(rules)
    return groups.values()


def _check_one_table(
    group: list[TableRules], sources: Mapping[str, TableSource], read: Read
) -> list[TableReport]:
    """The reports of guardrails on one and the same table; ``sources`` says of others as well."""
    table = OpenTable.of(read(group[0].source))
    rules = [rule for asked in group for rule in asked.rules]
    others = {
        rule.path: sources.get(rule.path, TableSource(rule.path))
        for rule in rules
        if isinstance(rule, ReferenceRule) and rule.path != group[0].path
    }
    hide = any(asked.hide_values for asked in group)
    referenced = {path: _opened(source, read, hide=hide) for path, source in others.items()}
    looked = _Looked(table, {group[0].path: table, **referenced})
    looked.unmet.update((rule, said) for rule in rules if (said := looked.told_by_schema(rule)))
    row_rules = [rule for rule in rules if isinstance(rule, RowRule) and rule not in looked.unmet]
    with_fingerprint = any(asked.fingerprint for asked in group) and not unhashable(table.schema)
    if row_rules or with_fingerprint:
        looked.counts = count_rows(table, row_rules, with_fingerprint=with_fingerprint)
    return [looked.report(asked) for asked in group]


def _opened(source: TableSource, read: Read, *, hide: bool) -> OpenTable | str:
    """A table that rules refer to; in its place, why it can't be read."""
    try:
        return OpenTable.of(read(source))
    except Exception as error:  # noqa: BLE001 - as above
        return _why_unreadable(source.path, error, hide=hide)


@dataclass
class _Looked:
    """What is known of a table so far."""

    table: OpenTable
    others: Mapping[str, OpenTable | str]
    unmet: dict[Rule, str] = field(default_factory=dict)
    counts: Counts | None = None

    def told_by_schema(self, rule: Rule) -> str | None:
        """Why the rule can't hold, or can't even be evaluated, whatever the rows are."""
        table = self.table
        for name in rule.columns:
            if said := table.missing(name):
                return said
        if isinstance(rule, ColumnRule) and rule.type is not None:
            kind = table.type_of(rule.name)
            return None if kind == rule.type else f"its type is {kind}"
        if isinstance(rule, WhereRule):
            return _unresolved(table, rule)
        if isinstance(rule, ReferenceRule):
            other = self.others[rule.path]
            if isinstance(other, str):
                return other
            for target in rule.targets:
                if said := other.missing(target):
                    return f"in {rule.path!r} {said}"
            return incomparable(table, other, rule)
        return None

    def report(self, asked: TableRules) -> TableReport:
        results = [self._result(asked, rule) for rule in asked.rules]
        if asked.fingerprint and (name := unhashable(self.table.schema)):
            results.append(
                RuleResult(
                    "fingerprint",
                    f"require_table({asked.path!r}, fingerprint=True)",
                    (name,),
                    f"column {name!r} holds variants, and Spark can't hash those",
                )
            )
        counts = self.counts
        return TableReport(
            asked.path,
            tuple(results),
            rows=counts.rows if counts else None,
            fingerprint=counts.fingerprint if counts and asked.fingerprint else None,
        )

    def _result(self, asked: TableRules, rule: Rule) -> RuleResult:
        hide = asked.hide_values
        try:
            broken = self._told_by_data(rule, hide=hide) if rule not in self.unmet else None
        except Exception as error:
            if not is_expression_error(error):
                raise
            broken = (f"it can't be evaluated: {_said(error, hide=hide)}", None, ())
        problem, count, samples = broken or (self.unmet.get(rule), None, ())
        return RuleResult(rule.kind, asked.written(rule), rule.columns, problem, count, samples)

    def _told_by_data(self, rule: Rule, *, hide: bool) -> Broken | None:
        match rule:
            case RowsRule():
                return self._told_by_number(rule)
            case NotNullRule() | WhereRule():
                return self._told_by_rows(rule, hide=hide)
            case UniqueRule():
                return repeated(self.table, rule, hide=hide)
            case ReferenceRule():
                other = self.others[rule.path]
                assert isinstance(other, OpenTable)  # noqa: S101 - else the rule is unmet
                return orphaned(self.table, other, rule, hide=hide)
            case SchemaRule():
                problems = schema_problems(rule.schema, self.table.frame)
                return ("; ".join(problems), None, ()) if problems else None
            case ColumnRule():
                return None

    def _told_by_number(self, rule: RowsRule) -> Broken | None:
        assert self.counts is not None  # noqa: S101 - counted for this rule
        rows = self.counts.rows
        if rows < rule.least:
            return f"{counted(rows, 'row')} found, at least {rule.least} needed", None, ()
        if rule.most is not None and rows > rule.most:
            return f"{counted(rows, 'row')} found, at most {rule.most} allowed", None, ()
        return None

    def _told_by_rows(self, rule: NotNullRule | WhereRule, *, hide: bool) -> Broken | None:
        assert self.counts is not None  # noqa: S101 - counted for this rule
        if error := self.counts.failed.get(rule):
            raise error
        count = self.counts.bad[rule]
        if not count:
            return None
        table = self.table
        samples = bad_rows(table, is_bad(table, rule), _mentioned(rule, table), hide=hide)
        broken = "break it" if count > 1 else "breaks it"
        if isinstance(rule, NotNullRule):
            broken = "have a null there" if count > 1 else "has a null there"
        return f"{counted(count, 'row')} {broken}", count, samples


def _unresolved(table: OpenTable, rule: WhereRule) -> str | None:
    """Why Spark can't make a condition on rows of it."""
    try:
        _ = table.frame.where(sf.expr(rule.condition)).schema
    except Exception as error:
        if not is_expression_error(error):
            raise
        return f"it can't be evaluated: {short_message(error)}"
    return None


def _mentioned(rule: NotNullRule | WhereRule, table: OpenTable) -> list[str]:
    """The columns that say most about a row that breaks the rule."""
    if isinstance(rule, NotNullRule):
        return [rule.name]
    words = set(re.findall(r"\w+", rule.condition))
    return [name for name in table.names if name in words]


def _unreadable(asked: TableRules, error: Exception) -> TableReport:
    why = _why_unreadable(asked.path, error, hide=asked.hide_values)
    result = RuleResult("read", asked.label, problem=why)
    return TableReport(asked.path, (result,))


def _why_unreadable(path: str, error: Exception, *, hide: bool) -> str:
    """In words. Raises the error itself if it doesn't lie with the files."""
    if isinstance(error, SparkPathError):
        return error.message
    if not is_file_error(error):
        raise error
    return f"the table {path!r} can't be read: {_said(error, hide=hide)}"


def _said(error: Exception, *, hide: bool) -> str | None:
    # Spark's message quotes the value that an expression stumbled over, or a partition's.
    return condition_name(error) if hide else short_message(error)


# --- Guardrails on data, checked by Spark: exact, and with as few passes as by hand ---


def check_tables(
    tables: Sequence[TableRules], read: Read, sources: Mapping[str, TableSource] | None = None
) -> list[TableReport]:
    """What the rules find, a report for each; ``read(source)`` gives a table's DataFrame.

    ``sources`` says how tables are read that others refer to; unless given, these rules do.
    Rules on the same table share one pass over its rows; each key of ``unique`` and each of
    ``references`` is one shuffle more. Files that are missing or can't be read, and rules that
    can't be evaluated, become results; raises whatever else keeps Spark from computing.
    """
    from perago.adapters.spark.table_checks import check_each_table

    if sources is None:
        sources = {rules.path: rules.source for rules in tables}
    return check_each_table(tables, read, sources)


def check_table(rules: TableRules, read: Read) -> TableReport:
    """The report of one; otherwise as :func:`check_tables`."""
    return check_tables([rules], read)[0]
