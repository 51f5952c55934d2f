"""What a definition tells about a value: who gives it, who published it, or that nobody can say.

Values are symbols. Two of them are equal only where every run of the workflow has the same thing in
both places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, TypeAlias

_EXPRESSION = re.compile(r"\$\{([^{}]+)\}")
_SEGMENT = re.compile(r"\['([^']*)'\]|([^.\[\]]+)")
_LONGEST_WORDS = 200


@dataclass(frozen=True, slots=True)
class Known:
    """Written in the definition itself."""

    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class Given:
    """What whoever starts the workflow gives, by its path in the input."""

    path: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What a task published to a branch. ``stale`` once another task wrote that branch."""

    branch: Branch
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Computed:
    """Made by something whose outcome the definition doesn't tell; ``words`` say by what."""

    words: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Null, on this path at least. ``why`` completes "… is missing: "."""

    why: str


@dataclass(frozen=True, slots=True)
class Fields:
    """An object with known fields."""

    items: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Value]) -> Fields:
        return cls(tuple(fields.items()))


Value: TypeAlias = Known | Given | Commit | Computed | Missing | Fields

Lookup: TypeAlias = Callable[[list[str]], Value]
"""What the segments of an expression's path stand for."""


class Branch(NamedTuple):
    """A branch to publish to: a repository's and its own name, each known or a symbol."""

    repository: Value
    name: Value

    def __str__(self) -> str:
        match self:
            case Branch(Given(repository), Given(name)):
                whole = repository.removesuffix(".repository")
                if name == f"{whole}.branch":
                    return f"the branch of ${{{whole}}}"
        return f"the branch {_words(self.repository)}/{_words(self.name)}"

    def surely_differs_from(self, other: Branch) -> bool:
        return any(
            isinstance(mine, Known) and isinstance(theirs, Known) and mine != theirs
            for mine, theirs in zip(self, other, strict=True)
        )


class Workspace(NamedTuple):
    """A workspace whose branch can be followed; whether its ref can is another question."""

    branch: Branch
    ref: Value


def value_of(written: object, lookup: Lookup) -> Value:
    """What a value written in a definition stands for."""
    if isinstance(written, Mapping):
        return Fields(tuple((str(k), value_of(v, lookup)) for k, v in written.items()))
    if isinstance(written, list):
        return Computed("a list")
    if not isinstance(written, str) or "${" not in written:
        return Known(written)  # type: ignore[arg-type]  # JSON has nothing else
    if whole := _EXPRESSION.fullmatch(written):
        return lookup(_segments(whole[1]))
    words = _EXPRESSION.sub(lambda found: _words(lookup(_segments(found[1]))), written)
    return Computed(_shortened(words))


def project(value: Value, path: Iterable[str]) -> Value:
    """The field of a value at that path."""
    return reduce(_field, path, value)


def workspace_in(value: Value) -> Workspace | None:
    """The workspace a value is; None if its branch can't be followed."""
    repository, name, ref = (_field(value, key) for key in ("repository", "branch", "ref"))
    if isinstance(value, Computed) or not _names(repository) or not _names(name):
        return None
    return Workspace(Branch(repository, name), ref)


def fields_of(workspace: Workspace, ref: Value) -> Fields:
    """The workspace at another ref, as a task puts it out."""
    branch = workspace.branch
    return Fields.of(
        {
            "repository": branch.repository,
            "branch": branch.name,
            "ref_type": Known("commit"),
            "ref": ref,
        }
    )


def staled(value: Value, branches: frozenset[Branch]) -> Value:
    """The value after tasks have written these branches."""
    if isinstance(value, Commit) and value.branch in branches:
        return replace(value, stale=True)
    if isinstance(value, Fields):
        return Fields(tuple((key, staled(inner, branches)) for key, inner in value.items))
    return value


def _field(value: Value, key: str) -> Value:
    match value:
        case Given(path):
            return Given(f"{path}.{key}")
        case Computed(words):
            return Computed(_shortened(f"{words}.{key}"))
        case Fields(items):
            return dict(items).get(key, Missing(f"there is no field {key!r}"))
        case Missing():
            return value
        case _:
            return Missing(f"{_words(value)} has no field {key!r}")


def _segments(path: str) -> list[str]:
    return [quoted or plain for quoted, plain in _SEGMENT.findall(path)]


def _names(value: Value) -> bool:
    """Whether a value can be a repository's or a branch's name."""
    return isinstance(value, Given | Computed) or (
        isinstance(value, Known) and isinstance(value.value, str)
    )


def _words(value: Value) -> str:
    match value:
        case Known(literal):
            return str(literal)
        case Given(path):
            return f"${{{path}}}"
        case Computed(words):
            return words
        case _:
            return "(nothing)"


def _shortened(words: str) -> str:
    # A loop may lengthen a text in every round, and there must be an end to telling them apart.
    return words if len(words) <= _LONGEST_WORDS else f"{words[:_LONGEST_WORDS]}…"
