"""Tables of a workspace: what must hold of their data, and what a look at it found.

Values only. ``require_table`` makes the rules; the Spark adapter checks them and makes the reports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

TableFormat: TypeAlias = Literal["parquet", "orc", "json", "csv", "text", "avro", "delta"]


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The column is there and, where ``type`` is given, of that type as Spark itself writes it."""

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
    """So many rows; ``most`` None means any number from ``least`` on."""

    kind: ClassVar[str] = "rows"
    columns: ClassVar[tuple[str, ...]] = ()
    least: int
    most: int | None

    def __str__(self) -> str:
        return f"rows={self.least if self.most is None else (self.least, self.most)!r}"


@dataclass(frozen=True, slots=True)
class NotNullRule:
    kind: ClassVar[str] = "not_null"
    name: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name,)

    def __str__(self) -> str:
        return f"not_null=[{self.name!r}]"


@dataclass(frozen=True, slots=True)
class WhereRule:
    """A SQL condition that is true of every row: neither false nor null of any."""

    kind: ClassVar[str] = "where"
    columns: ClassVar[tuple[str, ...]] = ()
    condition: str

    def __str__(self) -> str:
        return f"where={self.condition!r}"


@dataclass(frozen=True, slots=True)
class UniqueRule:
    """No two rows have the same values in these columns; nulls are alike."""

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
    """A table and how to read it. ``format`` None means that the names of its files tell.

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
    """How one rule stands. ``problem`` is None if it holds.

    ``count`` is how many rows break it, where that can be counted; ``samples`` shows some of them.
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
    """What the check of one ``require_table`` found, rule by rule.

    ``rows`` is None where no rule needed the rows counted; ``fingerprint`` where none was asked for
    or the table couldn't be read.
    """

    path: str
    results: tuple[RuleResult, ...]
    rows: int | None = None
    fingerprint: str | None = None

    @property
    def breaches(self) -> tuple[RuleResult, ...]:
        return tuple(result for result in self.results if result.problem is not None)

    def document(self) -> dict[str, object]:
        """The report as small JSON, for logs and the publication. It has no value of the data."""
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
