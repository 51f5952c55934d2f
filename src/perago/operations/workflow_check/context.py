"""What the check knows while it follows a workflow, and the result it builds up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from perago.operations.workflow_check.path_state import PathState, TaskRef, Write, lookup_on
from perago.operations.workflow_check.values import (
    Branch,
    Missing,
    Object,
    Unknown,
    Value,
    mark_stale,
    value_of,
)

if TYPE_CHECKING:
    from perago.operations.workflow_check.definition import Definition, Node
    from perago.operations.workflow_check.workspace_rule import Effect


@dataclass(frozen=True, slots=True)
class Problem:
    """A task that is in the wrong position or uses the wrong workspace."""

    workflow: str
    task: str
    message: str
    fix: str
    takes: str | None = None
    should_take: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A definition without problems is safe to run. Warnings are what can't be proven."""

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Report:
    """The result while it is built. Paths through a workflow share most of their problems."""

    _problems: dict[TaskRef, Problem] = field(default_factory=dict)
    _expected: dict[TaskRef, dict[str, None]] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)

    def add_expected(self, task: TaskRef, expression: str) -> None:
        """On one path, the task must use the workspace of this expression."""
        self._expected.setdefault(task, {})[expression] = None

    def add_problem(
        self,
        task: TaskRef,
        message: str,
        *,
        fix: str,
        takes: str | None = None,
        should_take: str | None = None,
    ) -> None:
        """Record a task's problem. Only the first one counts: later ones follow from it."""
        found = Problem(task.workflow, task.reference, message, fix, takes, should_take)
        self._problems.setdefault(task, found)

    def add_warning(self, sentence: str) -> None:
        self._warnings[sentence] = None

    def result(self) -> CheckResult:
        problems = (self._over_all_paths(task, found) for task, found in self._problems.items())
        return CheckResult(tuple(problems), tuple(self._warnings))

    def _over_all_paths(self, task: TaskRef, found: Problem) -> Problem:
        expected = self._expected.get(task, {})
        if found.should_take is None or len(expected) == 1:
            return found
        return replace(
            found,
            should_take=f"{' or '.join(expected)}, depending on the path",
            fix="no single expression fits all paths: set a workflow variable with SET_VARIABLE "
            "wherever the workspace changes, and use ${workflow.variables.workspace}",
        )


Resolve: TypeAlias = Callable[[str, int | None], "Definition | None"]
"""Finds a workflow's definition by name and version (None: the newest); None if unknown."""


@dataclass(frozen=True, slots=True)
class CheckContext:
    """The known effects of tasks by name, the other workflows, and the result so far."""

    effects: Mapping[str, Effect]
    resolve: Resolve
    report: Report = field(default_factory=Report)

    def report_concurrent_writes(self, one: Write, other: Write, why: str, fix: str) -> bool:
        """Report two writes that may happen at once; return whether both are to the same branch."""
        if one.branch == other.branch:
            both = f"{other.by} and {one.by}" if one.by != other.by else f"two runs of {one.by}"
            self.report.add_problem(
                other.by, f"{both} may write {one.branch} at the same time: {why}", fix=fix
            )
            return True
        if not one.branch.surely_differs_from(other.branch):
            self.report.add_warning(
                f"{one.by} writes {one.branch} and {other.by} writes {other.branch} at the same "
                f"time: {why}, and nothing shows that these are two different branches"
            )
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """One workflow being followed. ``ended`` are the paths that a TERMINATE completed."""

    context: CheckContext
    label: str
    definition: Definition
    inputs: Value
    ancestors: tuple[str, ...] = ()
    ended: list[tuple[PathState, Value]] = field(default_factory=list)

    @property
    def report(self) -> Report:
        return self.context.report

    def ref(self, node: Node) -> TaskRef:
        return TaskRef(self.label, node.reference)

    def value(self, written: object, path: PathState) -> Value:
        return value_of(written, lookup_on(path, self.inputs))


def task_record(inputs: Value, output: Value, written: frozenset[Branch] = frozenset()) -> Value:
    """A finished task as expressions see it, after it wrote these branches."""
    return Object.of({"input": mark_stale(inputs, written), "output": output})


def after_no_write(node: Node, output: Value, path: PathState, scope: Scope) -> PathState:
    """The path after a task that writes nothing."""
    return path.with_record(node.reference, task_record(scope.value(node.inputs, path), output))


def unknown_output(node: Node) -> Unknown:
    return Unknown(f"what {node.reference} computes")


def failed_record(node: Node) -> Value:
    why = f"{node.reference} is optional, and has no output where it fails"
    return Object.of({"output": Missing(why)})
