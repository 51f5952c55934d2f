"""Spark SQL's type names: which ones there are, and the one way Spark itself writes each."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
    """The type as a schema shows it: ``LONG`` is ``bigint``.

    Nested types are written as Spark writes them: ``struct<title:string,plays:array<int>>``.
    Raises ValueError, saying what is wrong.
    """
    reader = _Reader(_TOKEN.findall(text))
    if "".join(reader.tokens) != _outside_of_names(text):
        raise ValueError("it can't be read as a type")
    canonical = reader.type()
    if reader.position < len(reader.tokens):
        raise ValueError(f"{reader.tokens[reader.position]!r} is left over")
    return canonical


def _outside_of_names(text: str) -> str:
    """The text without blanks, but for those inside of quoted names."""
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
            raise ValueError(f"{text!r} is no number")
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
