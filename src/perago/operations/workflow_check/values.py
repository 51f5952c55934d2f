"""Symbolic values: what a definition shows about a value without running the workflow.

Two values are equal only if they are the same in every run of the workflow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple, TypeAlias

_EXPRESSION = re.compile(r"\$\{([^{}]+)\}")
_SEGMENT = re.compile(r"\['([^']*)'\]|([^.\[\]]+)")
_LONGEST_TEXT = 200


@dataclass(frozen=True, slots=True)
class Constant:
    """Written literally in the definition."""

    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class Input:
    """Part of the workflow's input, by its path."""

    path: str


@dataclass(frozen=True, slots=True)
class Published:
    """A commit that a task published to a branch. ``stale`` after a later write to that branch."""

    branch: Branch
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """Computed at run time, so the definition doesn't show it. ``origin`` says by what."""

    origin: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Null on this path. ``why`` completes the sentence "… is missing: "."""

    why: str


@dataclass(frozen=True, slots=True)
class Object:
    """An object with known fields."""

    items: tuple[tuple[str, Value], ...]

    @classmethod
    def of(cls, fields: Mapping[str, Value]) -> Object:
        return cls(tuple(fields.items()))


Value: TypeAlias = Constant | Input | Published | Unknown | Missing | Object

Lookup: TypeAlias = Callable[[list[str]], Value]
"""The value of an expression, by the segments of its path."""


class Branch(NamedTuple):
    """A branch to publish to: the repository's name and its own, each a value."""

    repository: Value
    name: Value

    def __str__(self) -> str:
        match self:
            case Branch(Input(repository), Input(name)):
                whole = repository.removesuffix(".repository")
                if name == f"{whole}.branch":
                    return f"the branch of ${{{whole}}}"
        return f"the branch {_text(self.repository)}/{_text(self.name)}"

    def surely_differs_from(self, other: Branch) -> bool:
        return any(
            isinstance(mine, Constant) and isinstance(theirs, Constant) and mine != theirs
            for mine, theirs in zip(self, other, strict=True)
        )


class Workspace(NamedTuple):
    """A workspace whose branch is identified. Its ref may be unknown."""

    branch: Branch
    ref: Value


def value_of(written: object, lookup: Lookup) -> Value:
    """The value that a definition's JSON stands for."""
    if isinstance(written, Mapping):
        return Object(tuple((str(k), value_of(v, lookup)) for k, v in written.items()))
    if isinstance(written, list):
        return Unknown("a list")
    if not isinstance(written, str) or "${" not in written:
        return Constant(written)  # type: ignore[arg-type]  # JSON has nothing else
    if whole := _EXPRESSION.fullmatch(written):
        return lookup(_segments(whole[1]))
    text = _EXPRESSION.sub(lambda found: _text(lookup(_segments(found[1]))), written)
    return Unknown(_shortened(text))


def project(value: Value, path: Iterable[str]) -> Value:
    """The field of a value at that path."""
    return reduce(_field, path, value)


def workspace_in(value: Value) -> Workspace | None:
    """The value as a workspace; None if its branch can't be identified."""
    repository, name, ref = (_field(value, key) for key in ("repository", "branch", "ref"))
    if isinstance(value, Unknown) or not _names(repository) or not _names(name):
        return None
    return Workspace(Branch(repository, name), ref)


def fields_of(workspace: Workspace, ref: Value) -> Object:
    """The workspace at another ref, as a task outputs it."""
    branch = workspace.branch
    return Object.of(
        {
            "repository": branch.repository,
            "branch": branch.name,
            "ref_type": Constant("commit"),
            "ref": ref,
        }
    )


def mark_stale(value: Value, branches: frozenset[Branch]) -> Value:
    """The value after writes to these branches."""
    if isinstance(value, Published) and value.branch in branches:
        return replace(value, stale=True)
    if isinstance(value, Object):
        return Object(tuple((key, mark_stale(inner, branches)) for key, inner in value.items))
    return value


def _field(value: Value, key: str) -> Value:
    match value:
        case Input(path):
            return Input(f"{path}.{key}")
        case Unknown(origin):
            return Unknown(_shortened(f"{origin}.{key}"))
        case Object(items):
            return dict(items).get(key, Missing(f"there is no field {key!r}"))
        case Missing():
            return value
        case _:
            return Missing(f"{_text(value)} has no field {key!r}")


def _segments(path: str) -> list[str]:
    return [quoted or plain for quoted, plain in _SEGMENT.findall(path)]


def _names(value: Value) -> bool:
    """Whether a value can be the name of a repository or a branch."""
    return isinstance(value, Input | Unknown) or (
        isinstance(value, Constant) and isinstance(value.value, str)
    )


def _text(value: Value) -> str:
    match value:
        case Constant(literal):
            return str(literal)
        case Input(path):
            return f"${{{path}}}"
        case Unknown(origin):
            return origin
        case _:
            return "(nothing)"


def _shortened(text: str) -> str:
    # A loop may lengthen a text in every round. Cut texts become equal, so that the rounds end.
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
