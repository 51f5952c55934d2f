"""What a walk through a workflow knows on its way, and how a task's fields are read there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from perago.operations.workflow_check.path_state import Path, Place, Write, lookup
from perago.operations.workflow_check.values import (
    Branch,
    Computed,
    Fields,
    Missing,
    Value,
    staled,
    value_of,
)

if TYPE_CHECKING:
    from perago.operations.workflow_check.definition import Definition, Node
    from perago.operations.workflow_check.workspace_rule import Effect


# --- What was found in a workflow definition: what is wrong with it, and what nothing shows ---


@dataclass(frozen=True, slots=True)
class Problem:
    """One task that may not stand where, or take what, it does."""

    workflow: str
    task: str
    message: str
    fix: str
    takes: str | None = None
    should_take: str | None = None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A definition is safe to run where there is no problem; a doubt is what isn't provable."""

    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


@dataclass(slots=True)
class Notes:
    """CheckResult while they are made: paths through a workflow share most of theirs."""

    _problems: dict[Place, Problem] = field(default_factory=dict)
    _expected: dict[Place, dict[str, None]] = field(default_factory=dict)
    _warnings: dict[str, None] = field(default_factory=dict)

    def expects(self, task: Place, expression: str) -> None:
        """On some path this is what the task has to take."""
        self._expected.setdefault(task, {})[expression] = None

    def refuse(
        self,
        task: Place,
        message: str,
        *,
        fix: str,
        takes: str | None = None,
        should_take: str | None = None,
    ) -> None:
        """The first problem with a task counts: what follows from it is no news."""
        found = Problem(task.workflow, task.reference, message, fix, takes, should_take)
        self._problems.setdefault(task, found)

    def warn(self, sentence: str) -> None:
        self._warnings[sentence] = None

    def findings(self) -> CheckResult:
        problems = (self._over_all_paths(task, found) for task, found in self._problems.items())
        return CheckResult(tuple(problems), tuple(self._warnings))

    def _over_all_paths(self, task: Place, found: Problem) -> Problem:
        expected = self._expected.get(task, {})
        if found.should_take is None or len(expected) == 1:
            return found
        return replace(
            found,
            should_take=f"{' or '.join(expected)}, by the path taken",
            fix="no single reference stands for all of them: set a workflow variable with "
            "SET_VARIABLE wherever the workspace changes, and take ${workflow.variables.workspace}",
        )


Resolve: TypeAlias = Callable[[str, int | None], "Definition | None"]
"""The definition of a workflow by name and version, the newest if None; None: it isn't at hand."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The known effects of tasks by name, the other workflows, and the notes made so far."""

    effects: Mapping[str, Effect]
    resolve: Resolve
    notes: Notes = field(default_factory=Notes)

    def side_by_side(self, one: Write, other: Write, why: str, fix: str) -> bool:
        """Note two writes at the same time; whether they surely are to one branch."""
        if one.branch == other.branch:
            both = f"{other.by} and {one.by}" if one.by != other.by else f"two runs of {one.by}"
            self.notes.refuse(
                other.by, f"{both} may write {one.branch} at the same time: {why}", fix=fix
            )
            return True
        if not one.branch.surely_differs_from(other.branch):
            self.notes.warn(
                f"{one.by} writes {one.branch} and {other.by} writes {other.branch} at the same "
                f"time: {why}, and nothing shows that these are two branches"
            )
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """One workflow that is gone through; ``ended`` has the paths that a TERMINATE ended well."""

    survey: Survey
    label: str
    definition: Definition
    inputs: Value
    ancestors: tuple[str, ...] = ()
    ended: list[tuple[Path, Value]] = field(default_factory=list)

    @property
    def notes(self) -> Notes:
        return self.survey.notes

    def place(self, node: Node) -> Place:
        return Place(self.label, node.reference)

    def value(self, written: object, path: Path) -> Value:
        return value_of(written, lookup(path, self.inputs))


def record(inputs: Value, output: Value, written: frozenset[Branch] = frozenset()) -> Value:
    """What expressions find of a task that has run, and written these branches."""
    return Fields.of({"input": staled(inputs, written), "output": output})


def ran(node: Node, output: Value, path: Path, frame: Frame) -> Path:
    """The path after a task that wrote nothing."""
    return path.ran(node.reference, record(frame.value(node.inputs, path), output))


def computed_by(node: Node) -> Computed:
    return Computed(f"what {node.reference} computes")


def failed(node: Node) -> Value:
    why = f"{node.reference} is optional, and has no output where it fails"
    return Fields.of({"output": Missing(why)})
