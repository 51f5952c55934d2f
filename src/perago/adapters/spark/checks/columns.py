"""Columns as rules name them, looked up in a DataFrame's schema before any job runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructType

from perago.model.field_errors import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EXACT = ({"tinyint", "smallint", "int", "bigint", "decimal"}, {"float", "double"})
"""Types that are compared with each other without a value changing."""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A DataFrame with its schema, asked for once: over Spark Connect that is a request."""

    frame: DataFrame
    schema: StructType

    @classmethod
    def of(cls, frame: DataFrame) -> OpenTable:
        return cls(frame, frame.schema)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.schema.fields]

    def type_of(self, name: str) -> str | None:
        """The type as Spark writes it; None if there is no such column."""
        found = self._find(name)
        return found[1].simpleString() if found else None

    def column(self, name: str) -> Column:
        """The column of a name that :meth:`type_of` knows."""
        found = self._find(name)
        assert found is not None  # noqa: S101 - looked for before
        return sf.col(".".join(quoted(part) for part in found[0]))

    def missing(self, name: str) -> str | None:
        """Why there is no such column, in words; None if there is one."""
        if self._find(name):
            return None
        return f"there is no column {name!r}; {did_you_mean(name, self.names)}"

    def _find(self, name: str) -> tuple[tuple[str, ...], DataType] | None:
        """A column, else a field inside of one: ``song.title``."""
        parts = (name,) if name in self.names else tuple(name.split("."))
        kind: DataType = self.schema
        for part in parts:
            if not isinstance(kind, StructType) or part not in kind.names:
                return None
            kind = kind[part].dataType
        return parts, kind


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def are_comparable(one: str, other: str) -> bool:
    """Whether equal values of these types are found equal, and no others."""
    families = ({one.partition("(")[0]} | {other.partition("(")[0]}) if one != other else set()
    return one == other or any(families <= exact for exact in _EXACT)
