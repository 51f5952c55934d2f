"""Guardrails on data, checked by Spark: exact, and with few passes over the data.

A table's rules are checked in the order of their cost: by its schema, in one pass over its rows,
key by key, and by pandera.
"""

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
    Counts,
    OpenTable,
    RowRule,
    Violation,
    count_rows,
    counted,
    incomparable,
    is_bad,
    orphaned_keys,
    repeated_keys,
    sample_rows,
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

ReadTable: TypeAlias = Callable[[TableSource], "DataFrame"]


def check_tables(
    tables: Sequence[TableRules], read: ReadTable, sources: Mapping[str, TableSource] | None = None
) -> list[TableReport]:
    """Check the rules, and return a report for each of ``tables``.

    ``read`` returns a table's DataFrame. ``sources`` says how to read the tables that rules refer
    to; by default as these rules read them. Rules on the same table share one pass over its rows;
    each key of ``unique`` and of ``references`` is one shuffle more. Files that are missing or
    can't be read, and rules that can't be evaluated, are results; raises any other error of Spark.
    """
    if sources is None:
        sources = {rules.path: rules.source for rules in tables}
    reports: dict[int, TableReport] = {}
    for group in _by_table(tables):
        try:
            found = _check_one_table(group, sources, read)
        except Exception as error:  # noqa: BLE001 - raised again if it isn't about the files
            found = [_unreadable(rules, error) for rules in group]
        reports |= {id(rules): report for rules, report in zip(group, found, strict=True)}
    return [reports[id(rules)] for rules in tables]


def check_table(rules: TableRules, read: ReadTable) -> TableReport:
    """Check the rules of one table as :func:`check_tables` does."""
    return check_tables([rules], read)[0]


def _by_table(tables: Iterable[TableRules]) -> Iterable[list[TableRules]]:
    groups: dict[TableSource, list[TableRules]] = {}
    for rules in tables:
        groups.setdefault(rules.source, []).append(rules)
    return groups.values()


def _check_one_table(
    group: list[TableRules], sources: Mapping[str, TableSource], read: ReadTable
) -> list[TableReport]:
    """Check all rules on one and the same table."""
    table = OpenTable.of(read(group[0].source))
    rules = [rule for table_rules in group for rule in table_rules.rules]
    others = {
        rule.path: sources.get(rule.path, TableSource(rule.path))
        for rule in rules
        if isinstance(rule, ReferenceRule) and rule.path != group[0].path
    }
    hide = any(table_rules.hide_values for table_rules in group)
    referenced = {path: _open(source, read, hide=hide) for path, source in others.items()}
    check = _TableCheck(table, {group[0].path: table, **referenced})
    check.unmet.update((rule, problem) for rule in rules if (problem := check.schema_problem(rule)))
    row_rules = [rule for rule in rules if isinstance(rule, RowRule) and rule not in check.unmet]
    wants_fingerprint = any(table_rules.fingerprint for table_rules in group)
    with_fingerprint = wants_fingerprint and not unhashable(table.schema)
    if row_rules or with_fingerprint:
        check.counts = count_rows(table, row_rules, with_fingerprint=with_fingerprint)
    return [check.report(table_rules) for table_rules in group]


def _open(source: TableSource, read: ReadTable, *, hide: bool) -> OpenTable | str:
    """Open a table that rules refer to; return the reason if it can't be read."""
    try:
        return OpenTable.of(read(source))
    except Exception as error:  # noqa: BLE001 - as above
        return _why_unreadable(source.path, error, hide=hide)


@dataclass
class _TableCheck:
    """The check of one table: the tables its rules refer to, and what is known so far.

    ``others`` has a reason in place of a table that can't be read. ``unmet`` are rules that can't
    hold whatever the rows are, with the reason.
    """

    table: OpenTable
    others: Mapping[str, OpenTable | str]
    unmet: dict[Rule, str] = field(default_factory=dict)
    counts: Counts | None = None

    def schema_problem(self, rule: Rule) -> str | None:
        """Say why the rule can't hold, or can't be evaluated, whatever the rows are."""
        table = self.table
        for name in rule.columns:
            if problem := table.missing(name):
                return problem
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
                if problem := other.missing(target):
                    return f"in {rule.path!r} {problem}"
            return incomparable(table, other, rule)
        return None

    def report(self, table_rules: TableRules) -> TableReport:
        results = [self._result(table_rules, rule) for rule in table_rules.rules]
        if table_rules.fingerprint and (name := unhashable(self.table.schema)):
            results.append(
                RuleResult(
                    "fingerprint",
                    f"require_table({table_rules.path!r}, fingerprint=True)",
                    (name,),
                    f"column {name!r} holds variants, and Spark can't hash those",
                )
            )
        counts = self.counts
        return TableReport(
            table_rules.path,
            tuple(results),
            rows=counts.rows if counts else None,
            fingerprint=counts.fingerprint if counts and table_rules.fingerprint else None,
        )

    def _result(self, table_rules: TableRules, rule: Rule) -> RuleResult:
        rule_text = table_rules.written(rule)
        if rule in self.unmet:
            return RuleResult(rule.kind, rule_text, rule.columns, self.unmet[rule])
        hide = table_rules.hide_values
        try:
            violation = self._violation(rule, hide=hide)
        except Exception as error:
            if not is_expression_error(error):
                raise
            violation = Violation(f"it can't be evaluated: {_message(error, hide=hide)}")
        if violation is None:
            return RuleResult(rule.kind, rule_text, rule.columns)
        problem, count, samples = violation.problem, violation.count, violation.samples
        return RuleResult(rule.kind, rule_text, rule.columns, problem, count, samples)

    def _violation(self, rule: Rule, *, hide: bool) -> Violation | None:
        match rule:
            case RowsRule():
                return self._wrong_count(rule)
            case NotNullRule() | WhereRule():
                return self._bad_rows(rule, hide=hide)
            case UniqueRule():
                return repeated_keys(self.table, rule, hide=hide)
            case ReferenceRule():
                other = self.others[rule.path]
                assert isinstance(other, OpenTable)  # noqa: S101 - otherwise the rule is unmet
                return orphaned_keys(self.table, other, rule, hide=hide)
            case SchemaRule():
                problems = _pandera_problems(rule.schema, self.table.frame)
                return Violation("; ".join(problems)) if problems else None
            case ColumnRule():
                return None

    def _wrong_count(self, rule: RowsRule) -> Violation | None:
        assert self.counts is not None  # noqa: S101 - counted for this rule
        rows = self.counts.rows
        if rows < rule.least:
            return Violation(f"{counted(rows, 'row')} found, at least {rule.least} needed")
        if rule.most is not None and rows > rule.most:
            return Violation(f"{counted(rows, 'row')} found, at most {rule.most} allowed")
        return None

    def _bad_rows(self, rule: NotNullRule | WhereRule, *, hide: bool) -> Violation | None:
        assert self.counts is not None  # noqa: S101 - counted for this rule
        if error := self.counts.failed.get(rule):
            raise error
        count = self.counts.bad[rule]
        if not count:
            return None
        table = self.table
        if isinstance(rule, NotNullRule):
            problem = "have a null there" if count > 1 else "has a null there"
        else:
            problem = "break it" if count > 1 else "breaks it"
        samples = sample_rows(table, is_bad(table, rule), _columns_of(rule, table), hide=hide)
        return Violation(f"{counted(count, 'row')} {problem}", count, samples)


def _unresolved(table: OpenTable, rule: WhereRule) -> str | None:
    """Say why Spark doesn't accept the condition; None if it does."""
    try:
        _ = table.frame.where(sf.expr(rule.condition)).schema
    except Exception as error:
        if not is_expression_error(error):
            raise
        return f"it can't be evaluated: {short_message(error)}"
    return None


def _columns_of(rule: NotNullRule | WhereRule, table: OpenTable) -> list[str]:
    """Return the columns that the rule mentions, which say most about a bad row."""
    if isinstance(rule, NotNullRule):
        return [rule.name]
    words = set(re.findall(r"\w+", rule.condition))
    return [name for name in table.names if name in words]


def _unreadable(table_rules: TableRules, error: Exception) -> TableReport:
    why = _why_unreadable(table_rules.path, error, hide=table_rules.hide_values)
    result = RuleResult("read", table_rules.label, problem=why)
    return TableReport(table_rules.path, (result,))


def _why_unreadable(path: str, error: Exception, *, hide: bool) -> str:
    """Return the reason in words. Raises the error itself if it isn't about the files."""
    if isinstance(error, SparkPathError):
        return error.message
    if not is_file_error(error):
        raise error
    return f"the table {path!r} can't be read: {_message(error, hide=hide)}"


def _message(error: Exception, *, hide: bool) -> str | None:
    # Spark's message quotes the value that an expression failed on, or that of a partition.
    return condition_name(error) if hide else short_message(error)


def _pandera_problems(schema: Any, frame: DataFrame) -> list[str]:
    """Return what is wrong, without any value of the data; empty if the schema holds.

    Raises RuntimeConfigError if pandera can't be imported.
    """
    try:
        from pandera.config import ValidationDepth, config_context
    except ImportError as error:
        raise RuntimeConfigError(
            f"schema=… needs pandera, which can't be imported: {error}",
            fix="install perago-runtime[pandera]",
        ) from error
    # Full depth, whatever the environment says: a guardrail must look at the data.
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        validated = schema.validate(frame)
    return [
        problem
        for group in validated.pandera.errors.values()
        for reason, errors in group.items()
        for problem in _pandera_messages(reason, errors)
    ]


def _pandera_messages(reason: str, errors: list[Mapping[str, Any]]) -> Iterator[str]:
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
