"""``require_table``: a guardrail on the data of a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from perago.declare.guardrails import SPARK_WILDCARD, as_text, checked_path
from perago.errors import TaskDefinitionError
from perago.model.declaration import did_you_mean, shown
from perago.model.tables import (
    ColumnRule,
    NotNullRule,
    ReferenceRule,
    RowsRule,
    Rule,
    SchemaRule,
    TableFormat,
    TableRules,
    TableSource,
    UniqueRule,
    WhereRule,
)

if TYPE_CHECKING:
    from os import PathLike


Columns: TypeAlias = Mapping[str, str] | Sequence[str]
Rows: TypeAlias = int | tuple[int, int | None]
Keys: TypeAlias = Sequence[str] | Sequence[Sequence[str]]
References: TypeAlias = (
    Mapping[str, str | tuple[str, ...]] | Mapping[tuple[str, ...], tuple[str, ...]]
)
_CONDITION = "a SQL condition on a row, such as 'seconds > 0', or a list of them"
_REFERENCE = "a mapping such as {'song_id': 'catalogue:id'}"


def require_table(
    path: str | PathLike[str],
    *,
    columns: Columns | None = None,
    rows: Rows | None = None,
    unique: Keys | None = None,
    not_null: Sequence[str] | None = None,
    where: str | Sequence[str] | None = None,
    references: References | None = None,
    schema: object = None,
    format: TableFormat | None = None,  # noqa: A002 - as Spark's own readers call it
    options: Mapping[str, str | bool | float] | None = None,
    hide_values: bool = False,
    fingerprint: bool = False,
) -> TableRules:
    """Spark can read the table at ``path``, and its data satisfies these rules.

    ``columns``: these exist, of these types if it is a mapping; others may exist, too.
    ``rows``: the least number of rows, or ``(least, most)``; None as ``most`` is no limit.
    ``unique``: no two rows have the same values in these columns, where nulls are equal; a list of
    lists is several keys. ``not_null``: no nulls in these columns.
    ``where``: a SQL condition, or several, that is true of every row: null isn't true.
    ``references``: ``{"song_id": "catalogue:id"}``, every song_id is an id in the table at
    ``catalogue``; ``{("year", "month"): ("calendar", "y", "m")}`` for keys of several columns. Keys
    with a null are not checked.
    ``schema``: a pandera schema for PySpark.
    ``format``: defaults to that of the files' names. ``options``: those of Spark's reader, such as
    ``{"header": True}`` for CSV. A table in ``references`` is read as its own ``require_table``
    says.
    ``hide_values``: messages about broken rules show no values of the data.
    ``fingerprint``: record a hash of the rows, independent of their order and files, with the
    publication.

    A column may be a nested field: ``song.title``. Raises TaskDefinitionError for an argument that
    is wrong or can never hold.
    """
    written = as_text(path)
    call = _Call(f"require_table({written!r})")
    call.check_path(written)
    rules = (
        *call.columns(columns),
        *call.rows(rows),
        *(NotNullRule(name) for name in call.names("not_null", not_null)),
        *call.where(where),
        *call.unique(unique),
        *call.references(references),
        *call.schema(schema),
    )
    call.check_flag("hide_values", hide_values)
    call.check_flag("fingerprint", fingerprint)
    source = TableSource(written, call.format(format), call.options(options))
    return TableRules(source, rules, hide_values, fingerprint)


class _Call:
    """One call of ``require_table``. Each method checks an argument, and names it if wrong."""

    def __init__(self, call: str) -> None:
        self.call = call

    def check_path(self, path: str) -> None:
        if found := SPARK_WILDCARD.search(path):
            raise TaskDefinitionError(
                f"{self.call}: {path!r} has a wildcard ({found[0]!r}), and a table is one "
                "directory or file",
                fix="write the directory its files are in",
            )
        checked_path(path, self.call)

    def columns(self, given: object) -> list[Rule]:
        if not isinstance(given, Mapping):
            return [ColumnRule(name, None) for name in self.names("columns", given)]
        return [ColumnRule(self._name("columns", n), self._type(n, t)) for n, t in given.items()]

    def _type(self, name: str, given: object) -> str:
        if not isinstance(given, str):
            raise self._refused(f"columns[{name!r}]", given, "a Spark SQL type, such as 'bigint'")
        try:
            return canonical_type(given)
        except ValueError as error:
            raise TaskDefinitionError(
                f"{self.call}: columns[{name!r}] can't be {given!r}: {error}",
                fix=f"write a Spark SQL type: {did_you_mean(given, KNOWN_TYPES)}",
            ) from None

    def rows(self, given: Any) -> list[Rule]:
        if given is None:
            return []
        least, most = given if isinstance(given, tuple) and len(given) == 2 else (given, None)  # noqa: PLR2004 - least and most
        if not _is_count(least) or not (most is None or _is_count(most)):
            raise self._refused("rows", given, "the least number of rows, or (least, most)")
        if most is not None and least > most:
            raise TaskDefinitionError(
                f"{self.call}: rows can't be {given!r}: no number is at least {least} and at most "
                f"{most}",
                fix=f"write rows=({most}, {least})",
            )
        return [RowsRule(least, most)]

    def names(self, field: str, given: object) -> list[str]:
        """Column names without duplicates. A string is refused: its letters aren't names."""
        if given is None:
            return []
        if isinstance(given, str):
            raise self._refused(field, given, f"a list: {field}=[{given!r}]")
        if not isinstance(given, Iterable):
            raise self._refused(field, given, "a list of column names")
        return list(dict.fromkeys(self._name(field, name) for name in given))

    def where(self, given: object) -> list[Rule]:
        if given is None:
            return []
        written = [given] if isinstance(given, str) else given
        if not isinstance(written, Iterable):
            raise self._refused("where", given, _CONDITION)
        conditions = list(written)
        for condition in conditions:
            if not isinstance(condition, str) or not condition.strip():
                raise self._refused("where", condition, _CONDITION)
        return [WhereRule(condition) for condition in conditions]

    def unique(self, given: object) -> list[Rule]:
        several = list(given) if isinstance(given, (list, tuple)) else []
        if several and all(isinstance(key, (list, tuple)) for key in several):
            return [UniqueRule(self._key("unique", key)) for key in several]
        return [UniqueRule(tuple(names))] if (names := self.names("unique", given)) else []

    def references(self, given: object) -> list[Rule]:
        if given is None:
            return []
        if not isinstance(given, Mapping):
            raise self._refused("references", given, _REFERENCE)
        return [self._reference(columns, target) for columns, target in given.items()]

    def _reference(self, given: object, target: object) -> ReferenceRule:
        columns = self._key("references", (given,) if isinstance(given, str) else given)
        field = f"references[{given!r}]"
        if isinstance(target, str):
            path, _, name = target.rpartition(":")
            targets: tuple[Any, ...] = (name,)
        elif isinstance(target, tuple) and target and isinstance(target[0], str):
            path, targets = target[0], target[1:]
        else:
            raise self._refused(field, target, _REFERENCE)
        if not path or len(targets) != len(columns):
            raise TaskDefinitionError(
                f"{self.call}: {field} can't be {target!r}: it names "
                f"{'no table' if not path else f'{len(targets)} column(s) for {len(columns)}'}",
                fix=f"write {_example(columns, path or target)}",
            )
        self.check_path(path)
        return ReferenceRule(columns, path, self._key(field, targets))

    def schema(self, given: object) -> list[Rule]:
        if given is None:
            return []
        kind = given if isinstance(given, type) else type(given)
        if not any(base.__module__.startswith("pandera.api.pyspark") for base in kind.__mro__):
            raise self._refused(
                "schema", given, "a DataFrameModel or DataFrameSchema of pandera.pyspark"
            )
        return [SchemaRule(given)]

    def format(self, given: TableFormat | None) -> TableFormat | None:
        known = get_args(TableFormat)
        if given is not None and given not in known:
            raise self._refused("format", given, f"one of {', '.join(known)}, or nothing")
        return given

    def options(self, given: object) -> tuple[tuple[str, str], ...]:
        if given is None:
            return ()
        if not isinstance(given, Mapping):
            raise self._refused("options", given, "a mapping, such as {'header': True}")
        return tuple(
            sorted((self._option(name), self._spelled(name, given[name])) for name in given)
        )

    def _option(self, name: object) -> str:
        if not isinstance(name, str) or not name:
            raise self._refused("options", name, "names of reader options")
        return name

    def _spelled(self, name: str, value: object) -> str:
        """The value as text, as Spark's readers expect it."""
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, (str, int, float)):
            raise self._refused(f"options[{name!r}]", value, "a string, a number, True or False")
        return str(value)

    def check_flag(self, field: str, given: object) -> None:
        if not isinstance(given, bool):
            raise self._refused(field, given, "True or False")

    def _key(self, field: str, given: object) -> tuple[str, ...]:
        names = [self._name(field, name) for name in given] if isinstance(given, Iterable) else []
        if not names or len(set(names)) < len(names):
            raise self._refused(field, given, "the names of different columns, one or more")
        return tuple(names)

    def _name(self, field: str, given: object) -> str:
        if not isinstance(given, str) or not given:
            raise self._refused(field, given, "names of columns")
        return given

    def _refused(self, field: str, given: object, wanted: str) -> TaskDefinitionError:
        return TaskDefinitionError(
            f"{self.call}: {field} can't be {shown(given)}", fix=f"give {field} {wanted}"
        )


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _example(columns: tuple[str, ...], path: object) -> str:
    if len(columns) == 1:
        return f"{{{columns[0]!r}: '{path}:{columns[0]}'}}"
    return f"{{{columns!r}: {(path, *columns)!r}}}"


# --- Spark SQL's types ----------------------------------------------------------------------------

_PLAIN = {
    "boolean": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "decimal": "decimal(10,0)",
    "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "variant": "variant",
}
_DECIMALS = ("decimal", "dec", "numeric")
_TOKEN = re.compile(r"\s*(`[^`]+`|[^\s<>(),:`]+|[<>(),:])")
KNOWN_TYPES = (*sorted({*_PLAIN.values()} - {"decimal(10,0)"}), "decimal", "array", "map", "struct")


def canonical_type(text: str) -> str:
    """The type as Spark writes it: ``LONG`` is ``bigint``.

    Nested types, too: ``struct<title:string,plays:array<int>>``. Raises ValueError, saying what is
    wrong.
    """
    reader = _Reader(_TOKEN.findall(text))
    if "".join(reader.tokens) != _outside_of_names(text):
        raise ValueError("it is not a type")
    canonical = reader.type()
    if reader.position < len(reader.tokens):
        raise ValueError(f"{reader.tokens[reader.position]!r} is left over")
    return canonical


def _outside_of_names(text: str) -> str:
    """The text without spaces, except those in quoted names."""
    return re.sub(r"(`[^`]*`)|\s+", r"\1", text)


@dataclass
class _Reader:
    tokens: list[str]
    position: int = 0

    def type(self) -> str:
        name = self._next("a type").lower()
        if name in _DECIMALS and self._has("("):
            precision = self._number()
            scale = self._number() if self._has(",") else 0
            self._expect(")")
            return f"decimal({precision},{scale})"
        if name == "array":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return f"array<{element}>"
        if name == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return f"map<{key},{value}>"
        if name == "struct":
            self._expect("<")
            fields = [self._field()]
            while self._has(","):
                fields.append(self._field())
            self._expect(">")
            return f"struct<{','.join(fields)}>"
        if name not in _PLAIN:
            raise ValueError(f"there is no type {name!r}")
        return _PLAIN[name]

    def _field(self) -> str:
        name = self._next("a field's name").strip("`")
        self._expect(":")
        return f"{name}:{self.type()}"

    def _number(self) -> int:
        text = self._next("a number")
        if not text.isdecimal():
            raise ValueError(f"{text!r} is not a number")
        return int(text)

    def _has(self, token: str) -> bool:
        found = self.tokens[self.position : self.position + 1] == [token]
        self.position += found
        return found

    def _expect(self, token: str) -> None:
        if not self._has(token):
            raise ValueError(f"{token!r} is missing")

    def _next(self, wanted: str) -> str:
        if self.position == len(self.tokens):
            raise ValueError(f"{wanted} is missing")
        self.position += 1
        return self.tokens[self.position - 1]
