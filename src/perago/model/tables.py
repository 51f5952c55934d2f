"""Rules for the data of a workspace's tables, and the reports of checking them.

Values only. ``require_table`` makes the rules; the Spark adapter checks them and makes the reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

TableFormat: TypeAlias = Literal["parquet", "orc", "json", "csv", "text", "avro", "delta"]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The column exists and, if ``type`` is given, has that type, in Spark's own notation."""

    kind: ClassVar[str] = "columns"
    name: str
    type: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        return f"columns={[self.name] if self.type is None else {self.name: self.type}!r}"


@dataclass(frozen=True, slots=True)
class RowsRule:
    """The table has ``least`` to ``most`` rows; ``most`` None means no upper limit."""

    kind: ClassVar[str] = "rows"
    columns: ClassVar[tuple[str, ...]] = ()
    least: int
    most: int | None

    def __str__(self) -> str:
        return f"rows={self.least if self.most is None else (self.least, self.most)!r}"


@dataclass(frozen=True, slots=True)
class NotNullRule:
    """The column has no null."""

    kind: ClassVar[str] = "not_null"
    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        return f"not_null=[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class WhereRule:
    """A SQL condition is true for every row; false and null both break it."""

    kind: ClassVar[str] = "where"
    columns: ClassVar[tuple[str, ...]] = ()
    condition: str

    def __str__(self) -> str:
        return f"where={self.condition!r}"


@dataclass(frozen=True, slots=True)
class UniqueRule:
    """No two rows have the same values in these columns; two nulls count as the same."""

    kind: ClassVar[str] = "unique"
    columns: tuple[str, ...]

    def __str__(self) -> str:
        return f"unique={list(self.columns)!r}"


@dataclass(frozen=True, slots=True)
class ReferenceRule:
    """Every key without a null has a row in the table at ``path`` with the same values."""

    kind: ClassVar[str] = "references"
    columns: tuple[str, ...]
    path: str
    targets: tuple[str, ...]

    def __str__(self) -> str:
        if len(self.columns) == 1:
            return f"references={{{self.columns[0]!r}: '{self.path}:{self.targets[0]}'}}"
        return f"references={{{self.columns!r}: {(self.path, *self.targets)!r}}}"


@dataclass(frozen=True, slots=True, eq=False)
class SchemaRule:
    """A pandera schema for PySpark holds. ``schema`` is the user's own object."""

    kind: ClassVar[str] = "schema"
    columns: ClassVar[tuple[str, ...]] = ()
    schema: object

    def __str__(self) -> str:
        name = getattr(self.schema, "__name__", None) or getattr(self.schema, "name", None)
        return f"schema={name or type(self.schema).__name__}"


Rule: TypeAlias = (
    ColumnRule | RowsRule | NotNullRule | WhereRule | UniqueRule | ReferenceRule | SchemaRule
)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table and how to read it. ``format`` None means: by the names of its files.

    ``options`` are those of Spark's reader for the format, such as ``("header", "true")``.
    """

    path: str
    format: TableFormat | None = None
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class TableRules:
    """What one ``require_table`` asks of a table.

    ``hide_values`` keeps every value of the data out of reports; ``fingerprint`` asks for a hash
    of its rows.
    """

    source: TableSource
    rules: tuple[Rule, ...]
    hide_values: bool = False
    fingerprint: bool = False

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def label(self) -> str:
        return f"require_table({self.path!r})"

    @property
    def paths(self) -> tuple[str, ...]:
        """The tables that are read to check it."""
        others = [rule.path for rule in self.rules if isinstance(rule, ReferenceRule)]
        return tuple(dict.fromkeys([self.path, *others]))

    def written(self, rule: Rule) -> str:
        """One of its rules the way a user writes it."""
        return f"require_table({self.path!r}, {rule})"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """The result of checking one rule. ``problem`` is None if it holds.

    ``count`` is how many rows break it, if that can be counted; ``samples`` shows some of them.
    """

    kind: str
    rule: str
    columns: tuple[str, ...] = ()
    problem: str | None = None
    count: int | None = None
    samples: tuple[str, ...] = ()

    def __str__(self) -> str:
        shown = f", such as {'; '.join(self.samples)}" if self.samples else ""
        return f"{self.rule}: {self.problem or 'holds'}{shown}"


@dataclass(frozen=True, slots=True)
class TableReport:
    """The results of one ``require_table``, rule by rule.

    ``rows`` is None if no rule counts the rows; ``fingerprint`` if none was asked for or the table
    couldn't be read.
    """

    path: str
    results: tuple[RuleResult, ...]
    rows: int | None = None
    fingerprint: str | None = None

    @property
    def breaches(self) -> tuple[RuleResult, ...]:
        """The results of the rules that don't hold."""
        return tuple(result for result in self.results if result.problem is not None)

    def document(self) -> dict[str, object]:
        """The report as small JSON, for logs and commit metadata. No values of the data."""
        document: dict[str, object] = {
            "path": self.path,
            "rows": self.rows,
            "fingerprint": self.fingerprint,
            "rules": [result.rule for result in self.results],
            "breaches": [{"rule": result.rule, "count": result.count} for result in self.breaches],
        }
        return {name: value for name, value in document.items() if value not in (None, [])}


def describe(report: TableReport) -> list[str]:
    """One sentence per broken rule, in their order; empty if all hold."""
    return [str(breach) for breach in report.breaches]
