"""Registers tasks and workflows with the orchestrator as the code declares them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from perago.errors import DefinitionDiffersError
from perago.model.declaration import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perago.ports.orchestrator import Definitions


_BOOKKEEPING = frozenset({"ownerApp", "createTime", "updateTime", "createdBy", "updatedBy"})
"""Fields that the server writes: who registered something, and when."""
_FILLED_IN: Mapping[str, Mapping[str, Any]] = {
    # the values the server fills in for missing fields
    "task": {"rateLimitFrequencyInSeconds": 1, "taskStatusListenerEnabled": True},
    "workflow": {"enforceSchema": True, "restartable": True},
}


class DefinitionState(StrEnum):
    """How the registered definition compares with the declared one."""

    MISSING = "missing"
    SAME = "same"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Difference:
    """One field: what the code declares (``ours``) and what is registered; None if missing."""

    field: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.field} is {shown(self.theirs)}, not {shown(self.ours)}"


@dataclass(frozen=True, slots=True)
class Registration:
    """A declared definition compared with the registered one. ``pushed``: it was registered now."""

    kind: Literal["task", "workflow"]
    name: str
    state: DefinitionState
    differences: tuple[Difference, ...] = ()
    pushed: bool = False

    def problem(self) -> DefinitionDiffersError | None:
        """The error, unless it is the same or was pushed."""
        if self.state is DefinitionState.SAME or self.pushed:
            return None
        if self.state is DefinitionState.MISSING:
            what = "isn't registered"
        else:
            what = "is registered differently from the code: " + "; ".join(
                map(str, self.differences)
            )
        return DefinitionDiffersError(
            f"{self.kind} {self.name!r} {what}",
            fix="register it as it is declared: `perago register`",
        )


def compare(
    definitions: Definitions,
    tasks: Sequence[Mapping[str, Any]],
    workflows: Sequence[Mapping[str, Any]] = (),
) -> list[Registration]:
    """Compare each declared definition with the registered one, in the given order."""
    return [
        *(_beside("task", ours, definitions.task(ours["name"])) for ours in tasks),
        *(
            _beside("workflow", ours, definitions.workflow(ours["name"], ours["version"]))
            for ours in workflows
        ),
    ]


def register(
    definitions: Definitions,
    tasks: Sequence[Mapping[str, Any]],
    workflows: Sequence[Mapping[str, Any]] = (),
) -> list[Registration]:
    """Register what is missing or differs, tasks before workflows, and return what was done.

    Raises OrchestratorRefusedError with the server's message; what comes before it is registered.
    """
    done = []
    for found, ours in zip(
        compare(definitions, tasks, workflows), (*tasks, *workflows), strict=True
    ):
        if found.state is DefinitionState.SAME:
            done.append(found)
            continue
        push = definitions.push_task if found.kind == "task" else definitions.push_workflow
        push(ours)
        done.append(replace(found, pushed=True))
    return done


def differences(
    definitions: Definitions,
    tasks: Sequence[Mapping[str, Any]],
    workflows: Sequence[Mapping[str, Any]] = (),
) -> list[DefinitionDiffersError]:
    """An error for each definition that is missing or differs."""
    found = compare(definitions, tasks, workflows)
    return [problem for one in found if (problem := one.problem()) is not None]


def _beside(
    kind: Literal["task", "workflow"], ours: Mapping[str, Any], theirs: Mapping[str, Any] | None
) -> Registration:
    if theirs is None:
        return Registration(kind, ours["name"], DefinitionState.MISSING)
    found = tuple(fields_that_differ(ours, theirs, _FILLED_IN[kind]))
    return Registration(
        kind, ours["name"], DefinitionState.DIFFERS if found else DefinitionState.SAME, found
    )


def fields_that_differ(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    filled_in: Mapping[str, Any],
    within: str = "",
) -> Iterator[Difference]:
    """The fields in which two definitions differ in meaning.

    Fields that the server writes, leaves empty or has ``filled_in`` don't count. Another field that
    only the server has does: a user has set it there.
    """
    for name in dict.fromkeys((*ours, *theirs)):
        mine, other = ours.get(name), theirs.get(name)
        place = f"{within}{name}"
        if name in _BOOKKEEPING or mine == other:
            continue
        if name not in ours and (other == filled_in.get(name) or not other):
            continue
        if name == "tasks":
            yield from _tasks_that_differ(mine, other)
        elif name in ("inputSchema", "outputSchema") and mine and other:
            yield from fields_that_differ(mine, other, {}, f"{place}.")
        else:
            yield Difference(place, mine, other)


def _tasks_that_differ(ours: Any, theirs: Any) -> Iterator[Difference]:
    """A workflow's tasks one by one, if both have the same tasks in the same order."""
    names = [[task.get("taskReferenceName") for task in tasks or ()] for tasks in (ours, theirs)]
    if names[0] != names[1]:
        yield Difference("tasks", *names)
        return
    for mine, other in zip(ours, theirs, strict=True):
        # A task's own definition is compared by itself.
        known = {name: value for name, value in other.items() if name != "taskDefinition"}
        yield from fields_that_differ(mine, known, {}, f"tasks.{mine['taskReferenceName']}.")
