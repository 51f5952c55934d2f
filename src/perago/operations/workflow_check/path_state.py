"""One way through a workflow: what has run on it, and where that left every branch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from perago.operations.workflow_check.values import (
    Branch,
    Computed,
    Lookup,
    Missing,
    Value,
    project,
    staled,
)


class Place(NamedTuple):
    """A task, by the workflow it is in (sub-workflows by their place) and its reference there."""

    workflow: str
    reference: str

    def __str__(self) -> str:
        nested = "/" in self.workflow
        return f"{self.reference} in {self.workflow}" if nested else self.reference


class Write(NamedTuple):
    """A branch, and who writes it."""

    branch: Branch
    by: Place


class Unawaited(NamedTuple):
    """A write that nothing waits for, and what would make something wait."""

    write: Write
    fix: str


@dataclass(frozen=True, slots=True)
class Path:
    """What is so after some tasks have run.

    ``records`` hold each task's input and output; ``heads`` who wrote a branch last, and ``latest``
    the branch written last; ``writes`` what this workflow has written, and ``recent`` the part of
    it since the innermost fork began; ``beside`` the writes, and ``unsteady`` the variables, that
    may happen or be set at any time from here on; ``excused`` the branches refused already.
    """

    records: Mapping[str, Value] = field(default_factory=dict)
    variables: Mapping[str, Value] = field(default_factory=dict)
    heads: Mapping[Branch, Place] = field(default_factory=dict)
    writes: frozenset[Write] = frozenset()
    recent: frozenset[Write] = frozenset()
    beside: frozenset[Unawaited] = frozenset()
    unsteady: frozenset[str] = frozenset()
    excused: frozenset[Branch] = frozenset()
    latest: Branch | None = None

    def ran(self, reference: str, record: Value) -> Path:
        return replace(self, records={**self.records, reference: record})

    def with_variables(self, variables: Mapping[str, Value]) -> Path:
        return replace(self, variables={**self.variables, **variables})

    def wrote(self, branch: Branch, by: Place) -> Path:
        """Every value that was the branch's head is none any more."""
        after = self.staled(frozenset({branch}))
        return replace(
            after,
            heads={**self.heads, branch: by},
            writes=self.writes | {Write(branch, by)},
            recent=self.recent | {Write(branch, by)},
            latest=branch,
        )

    def staled(self, branches: frozenset[Branch]) -> Path:
        return replace(
            self,
            records={key: staled(value, branches) for key, value in self.records.items()},
            variables={key: staled(value, branches) for key, value in self.variables.items()},
        )

    def forked(self, unsteady: frozenset[str] = frozenset()) -> Path:
        """As a branch of a fork starts, beside others that set these variables."""
        return replace(self, recent=frozenset(), unsteady=self.unsteady | unsteady)

    def within(self) -> Path:
        """As a sub-workflow starts: other tasks and variables, the same branches."""
        fresh = replace(self.forked(), records={}, variables={}, unsteady=frozenset())
        return replace(fresh, writes=frozenset())

    def after(self, inner: Path, by: Place, record: Value) -> Path:
        """This path once a sub-workflow, ``by``, has gone the ``inner`` one."""
        branches = branches_of(inner.writes)
        return replace(
            self.staled(branches),
            heads=dict(inner.heads) | dict.fromkeys(branches, by),
            writes=self.writes | inner.writes,
            recent=self.recent | inner.writes,
            beside=inner.beside,
            excused=inner.excused,
            latest=inner.latest,
        ).ran(by.reference, record)

    @property
    def fingerprint(self) -> object:
        """Equal for two paths on which the same will be right and wrong."""
        return (
            frozenset(self.records.items()),
            frozenset(self.variables.items()),
            frozenset(self.heads.items()),
            self.writes,
            self.recent,
            self.beside,
            self.unsteady,
            self.excused,
            self.latest,
        )


def lookup(path: Path, inputs: Value) -> Lookup:
    """What expressions stand for on a path of a workflow with these inputs."""

    def look_up(segments: list[str]) -> Value:
        match segments:
            case ["workflow", "input", *rest]:
                return project(inputs, rest)
            case ["workflow", "variables", name, *_] if name in path.unsteady:
                return Computed(f"a variable that is set at the same time ({name})")
            case ["workflow", "variables", name, *rest]:
                return project(path.variables.get(name, Missing("nothing has set it")), rest)
            case [reference, "input" | "output", *_] if reference in path.records:
                return project(path.records[reference], segments[1:])
            case [reference, "input" | "output", *_] if reference != "workflow":
                return Missing(f"{reference} hasn't run by then on every path")
            case _:
                return Computed(f"${{{'.'.join(segments)}}}")

    return look_up


def distinct(paths: Iterable[Path]) -> list[Path]:
    return list({path.fingerprint: path for path in paths}.values())


def branches_of(writes: Iterable[Write]) -> frozenset[Branch]:
    return frozenset(write.branch for write in writes)


def joined(before: Path, ends: Sequence[Path]) -> Path:
    """Where the branches of a fork, each begun at ``before``, have come to together."""
    written = [branches_of(end.recent) for end in ends]
    everything = frozenset[Branch]().union(*written)
    merged = before.staled(everything)
    records, variables, heads = dict(merged.records), dict(merged.variables), dict(before.heads)
    for end, own in zip(ends, written, strict=True):
        idle = before.staled(own)
        seen = end.staled(everything - own)
        records |= _changed(seen.records, end.records, idle.records)
        for name, value in _changed(seen.variables, end.variables, idle.variables).items():
            contested = variables.get(name) not in (merged.variables.get(name), value)
            variables[name] = Computed(f"${{workflow.variables.{name}}}") if contested else value
        heads |= {branch: end.heads[branch] for branch in own}
    return replace(
        merged,
        records=records,
        variables=variables,
        heads=heads,
        writes=before.writes.union(*(end.writes for end in ends)),
        recent=before.recent.union(*(end.recent for end in ends)),
        beside=before.beside.union(*(end.beside for end in ends)),
        unsteady=before.unsteady,
        excused=before.excused.union(*(end.excused for end in ends)),
        latest=next((end.latest for end in reversed(ends) if end.recent), before.latest),
    )


def _changed(
    seen: Mapping[str, Value], end: Mapping[str, Value], idle: Mapping[str, Value]
) -> dict[str, Value]:
    return {key: seen[key] for key, value in end.items() if value != idle.get(key)}
