"""What was found in a workflow definition: what is wrong with it, and what nothing shows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from perago.operations.workflow_check.paths import Place


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
class Findings:
    """A definition is safe to run where there is no problem; a doubt is what isn't provable."""

    problems: tuple[Problem, ...]
    doubts: tuple[str, ...]


@dataclass(slots=True)
class Notes:
    """Findings while they are made: paths through a workflow share most of theirs."""

    _problems: dict[Place, Problem] = field(default_factory=dict)
    _expected: dict[Place, dict[str, None]] = field(default_factory=dict)
    _doubts: dict[str, None] = field(default_factory=dict)

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

    def doubt(self, sentence: str) -> None:
        self._doubts[sentence] = None

    def findings(self) -> Findings:
        problems = (self._over_all_paths(task, found) for task, found in self._problems.items())
        return Findings(tuple(problems), tuple(self._doubts))

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
