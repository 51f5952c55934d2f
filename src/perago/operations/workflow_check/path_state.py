"""The state at one point of a path through a workflow: finished tasks, and who wrote what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from perago.operations.workflow_check.values import (
    Branch,
    Lookup,
    Missing,
    Unknown,
    Value,
    mark_stale,
    project,
)


class TaskRef(NamedTuple):
    """A task: its workflow (sub-workflows as ``outer/task``) and its reference name there."""

    workflow: str
    reference: str

    def __str__(self) -> str:
        nested = "/" in self.workflow
        return f"{self.reference} in {self.workflow}" if nested else self.reference


class Write(NamedTuple):
    """A branch, and the task that writes it."""

    branch: Branch
    by: TaskRef


class UnawaitedWrite(NamedTuple):
    """A write that no later task waits for, and how to make one wait."""

    write: Write
    fix: str


@dataclass(frozen=True, slots=True)
class PathState:
    """What holds after some tasks have run.

    ``records``: each finished task's input and output, by reference.
    ``last_writers``: which task wrote a branch last; ``last_written``: the branch written last.
    ``writes``: all writes of this workflow; ``writes_since_fork``: those since the innermost fork.
    ``unawaited``: writes that may happen at any time from here on.
    ``concurrent_variables``: variables that may be set at any time from here on.
    ``reported_branches``: branches with a problem already reported.
    """

    records: Mapping[str, Value] = field(default_factory=dict)
    variables: Mapping[str, Value] = field(default_factory=dict)
    last_writers: Mapping[Branch, TaskRef] = field(default_factory=dict)
    writes: frozenset[Write] = frozenset()
    writes_since_fork: frozenset[Write] = frozenset()
    unawaited: frozenset[UnawaitedWrite] = frozenset()
    concurrent_variables: frozenset[str] = frozenset()
    reported_branches: frozenset[Branch] = frozenset()
    last_written: Branch | None = None

    def with_record(self, reference: str, record: Value) -> PathState:
        return replace(self, records={**self.records, reference: record})

    def with_variables(self, variables: Mapping[str, Value]) -> PathState:
        return replace(self, variables={**self.variables, **variables})

    def with_write(self, branch: Branch, by: TaskRef) -> PathState:
        """After a write: every value that was the branch's head is stale."""
        after = self.with_stale(frozenset({branch}))
        return replace(
            after,
            last_writers={**self.last_writers, branch: by},
            writes=self.writes | {Write(branch, by)},
            writes_since_fork=self.writes_since_fork | {Write(branch, by)},
            last_written=branch,
        )

    def with_stale(self, branches: frozenset[Branch]) -> PathState:
        return replace(
            self,
            records={key: mark_stale(value, branches) for key, value in self.records.items()},
            variables={key: mark_stale(value, branches) for key, value in self.variables.items()},
        )

    def at_fork_start(self, concurrent_variables: frozenset[str] = frozenset()) -> PathState:
        """At the start of a fork's branch; the other branches may set these variables."""
        return replace(
            self,
            writes_since_fork=frozenset(),
            concurrent_variables=self.concurrent_variables | concurrent_variables,
        )

    def at_workflow_start(self) -> PathState:
        """At the start of a sub-workflow: no tasks or variables yet, the same branches."""
        fresh = replace(
            self.at_fork_start(), records={}, variables={}, concurrent_variables=frozenset()
        )
        return replace(fresh, writes=frozenset())

    def after_workflow(self, inner: PathState, by: TaskRef, record: Value) -> PathState:
        """This path after the sub-workflow of task ``by`` ended in the state ``inner``."""
        branches = branches_written(inner.writes)
        return replace(
            self.with_stale(branches),
            last_writers=dict(inner.last_writers) | dict.fromkeys(branches, by),
            writes=self.writes | inner.writes,
            writes_since_fork=self.writes_since_fork | inner.writes,
            unawaited=inner.unawaited,
            reported_branches=inner.reported_branches,
            last_written=inner.last_written,
        ).with_record(by.reference, record)

    @property
    def fingerprint(self) -> object:
        """Equal for two paths that need not be told apart: all later checks agree."""
        return (
            frozenset(self.records.items()),
            frozenset(self.variables.items()),
            frozenset(self.last_writers.items()),
            self.writes,
            self.writes_since_fork,
            self.unawaited,
            self.concurrent_variables,
            self.reported_branches,
            self.last_written,
        )


def lookup_on(path: PathState, inputs: Value) -> Lookup:
    """The values of expressions on a path of a workflow with these inputs."""

    def look_up(segments: list[str]) -> Value:
        match segments:
            case ["workflow", "input", *rest]:
                return project(inputs, rest)
            case ["workflow", "variables", name, *_] if name in path.concurrent_variables:
                return Unknown(f"a variable that is set at the same time ({name})")
            case ["workflow", "variables", name, *rest]:
                return project(path.variables.get(name, Missing("nothing has set it")), rest)
            case [reference, "input" | "output", *_] if reference in path.records:
                return project(path.records[reference], segments[1:])
            case [reference, "input" | "output", *_] if reference != "workflow":
                return Missing(f"{reference} hasn't run by then on every path")
            case _:
                return Unknown(f"${{{'.'.join(segments)}}}")

    return look_up


def distinct(paths: Iterable[PathState]) -> list[PathState]:
    return list({path.fingerprint: path for path in paths}.values())


def branches_written(writes: Iterable[Write]) -> frozenset[Branch]:
    return frozenset(write.branch for write in writes)


def join_paths(before: PathState, ends: Sequence[PathState]) -> PathState:
    """The state after a join: every branch of the fork, begun at ``before``, has ended."""
    written = [branches_written(end.writes_since_fork) for end in ends]
    everything = frozenset[Branch]().union(*written)
    merged = before.with_stale(everything)
    records, variables, last_writers = (
        dict(merged.records),
        dict(merged.variables),
        dict(before.last_writers),
    )
    for end, own in zip(ends, written, strict=True):
        idle = before.with_stale(own)
        seen = end.with_stale(everything - own)
        records |= _changed(seen.records, end.records, idle.records)
        for name, value in _changed(seen.variables, end.variables, idle.variables).items():
            contested = variables.get(name) not in (merged.variables.get(name), value)
            variables[name] = Unknown(f"${{workflow.variables.{name}}}") if contested else value
        last_writers |= {branch: end.last_writers[branch] for branch in own}
    return replace(
        merged,
        records=records,
        variables=variables,
        last_writers=last_writers,
        writes=before.writes.union(*(end.writes for end in ends)),
        writes_since_fork=before.writes_since_fork.union(*(end.writes_since_fork for end in ends)),
        unawaited=before.unawaited.union(*(end.unawaited for end in ends)),
        concurrent_variables=before.concurrent_variables,
        reported_branches=before.reported_branches.union(*(end.reported_branches for end in ends)),
        last_written=next(
            (end.last_written for end in reversed(ends) if end.writes_since_fork),
            before.last_written,
        ),
    )


def _changed(
    seen: Mapping[str, Value], end: Mapping[str, Value], idle: Mapping[str, Value]
) -> dict[str, Value]:
    return {key: seen[key] for key, value in end.items() if value != idle.get(key)}
