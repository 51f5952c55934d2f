"""What happened to a bench's branch, in order, as the attempts of a schedule did and saw it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.declare.task import AnyTask
    from perago.model.attempt import Delivery, Execution
    from perago.model.outcome import AttemptOutcome


@dataclass(frozen=True, slots=True)
class Movement:
    """The branch moved. ``execution`` is None when somebody outside the protocol moved it."""

    before: str
    after: str
    execution: Execution | None


@dataclass(frozen=True, slots=True)
class Sighting:
    """An execution read the branch's head."""

    head: str
    execution: Execution


@dataclass(slots=True)
class Ledger:
    """Everything worth judging afterwards. ``tasks`` are by task id, the others by execution id.

    Executions that crashed have no outcome.
    """

    tasks: dict[str, AnyTask] = field(default_factory=dict)
    deliveries: dict[str, Delivery] = field(default_factory=dict)
    entries: list[Movement | Sighting] = field(default_factory=list)
    outcomes: dict[str, AttemptOutcome] = field(default_factory=dict)

    @property
    def movements(self) -> list[Movement]:
        return [entry for entry in self.entries if isinstance(entry, Movement)]

    def may_write(self, task_id: str) -> bool:
        """Whether this is a task of the schedule that publishes what it changes."""
        task = self.tasks.get(task_id)
        return bool(task and task.workspace and not task.workspace.read_only)

    def moved_by(self, execution_id: str) -> list[Movement]:
        """How one execution moved the branch; a move to where it was already doesn't count."""
        return [
            movement
            for movement in self.movements
            if movement.execution is not None
            and movement.execution.id == execution_id
            and movement.before != movement.after
        ]

    def published_by(self, task_id: str, input_ref: str) -> list[str]:
        """What all executions of this task id put on the branch; going back to A isn't that."""
        return [
            movement.after
            for movement in self.movements
            if movement.execution is not None
            and movement.execution.attempt.task_id == task_id
            and movement.after not in (movement.before, input_ref)
        ]

    def heads_of(self, task_id: str) -> set[str]:
        """Every head that an execution of this task id put in place or read."""
        return {
            entry.after if isinstance(entry, Movement) else entry.head
            for entry in self.entries
            if entry.execution is not None and entry.execution.attempt.task_id == task_id
        }
