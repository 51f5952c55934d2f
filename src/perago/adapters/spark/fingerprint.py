"""A hash of a table's rows that doesn't depend on their order, their files or the column order.

Every row is hashed to 64 bits and the hashes are added up, so a row that occurs twice counts twice.
The names and types of the columns are part of it. As in Spark's own hash, ``-0.0`` equals ``0.0``
and all NaNs are equal. The order of an array's elements counts, that of a map's entries doesn't.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column

_BITS = (22, 21, 21)
"""A hash is cut into parts that are added up separately, so that no sum of bigints overflows."""


def unhashable(schema: StructType) -> str | None:
    """Return the first column whose values Spark can't hash; None if there is none."""
    return next((f.name for f in schema.fields if _holds_variant(f.dataType)), None)


def row_hash(schema: StructType) -> Column:
    """Return the hash of a row. Make it a column, so that :func:`sums` computes it once."""
    fields = sorted(schema.fields, key=lambda field: field.name)
    return _hash_of([(sf.col(quoted(field.name)), field.dataType) for field in fields])


def sums(hashes: Column) -> dict[str, Column]:
    """Return the aggregates of the rows' hashes that :func:`digest` needs, by name."""
    found: dict[str, Column] = {}
    position = 0
    for number, bits in enumerate(_BITS):
        part = sf.shiftrightunsigned(hashes, position).bitwiseAND(sf.lit((1 << bits) - 1))
        found[f"fingerprint{number}"] = sf.coalesce(sf.sum(part), sf.lit(0))
        position += bits
    return found


def digest(schema: StructType, rows: int, added: Mapping[str, int]) -> str:
    """Return the fingerprint, as 32 hexadecimal digits."""
    total, position = 0, 0
    for number, bits in enumerate(_BITS):
        total += added[f"fingerprint{number}"] << position
        position += bits
    columns = sorted([field.name, field.dataType.simpleString()] for field in schema.fields)
    content = json.dumps([columns, rows, total % (1 << 64)])
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def quoted(name: str) -> str:
    """Return a column's name as Spark's expressions need it."""
    return f"`{name.replace('`', '``')}`"


def _hash_of(values: list[tuple[Column, DataType]]) -> Column:
    """Return one hash of several values.

    Spark's hash skips nulls, so whether a value is null is hashed as well.
    """
    parts = [part for value, kind in values for part in (value.isNull(), _flat(value, kind))]
    return sf.xxhash64(*parts) if parts else sf.lit(0).cast("bigint")


def _flat(value: Column, kind: DataType) -> Column:
    """Hash nested values by themselves: Spark's hash doesn't see where one member ends.

    It hashes all members one after the other, so different nestings would have the same hash.
    """
    if isinstance(kind, StructType):
        fields = sorted(kind.fields, key=lambda field: field.name)
        return _hash_of([(value.getField(f.name), f.dataType) for f in fields])
    if isinstance(kind, ArrayType):
        element = kind.elementType
        hashes = sf.transform(value, lambda item: _hash_of([(item, element)]))
        return sf.xxhash64(sf.size(value), hashes)
    if isinstance(kind, MapType):
        key, content = kind.keyType, kind.valueType
        entries = sf.transform(
            sf.map_entries(value),
            lambda entry: _hash_of([(entry["key"], key), (entry["value"], content)]),
        )
        return sf.xxhash64(sf.size(value), sf.array_sort(entries))
    return value


def _holds_variant(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_holds_variant(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _holds_variant(kind.elementType)
    if isinstance(kind, MapType):
        return _holds_variant(kind.keyType) or _holds_variant(kind.valueType)
    return isinstance(kind, VariantType)
