"""A Conductor workflow definition, as far as the check of its writes has to know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from perago.errors import TaskDefinitionError
from perago.model.declaration import shown

Json: TypeAlias = Mapping[str, Any]

_NESTED = ("forkTasks", "decisionCases", "defaultCase", "loopOver")


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One task of a workflow. ``more`` has the fields that only its own kind of task has."""

    reference: str
    name: str
    kind: str
    inputs: Json
    optional: bool
    forks: tuple[tuple[Node, ...], ...]
    cases: tuple[tuple[Node, ...], ...]
    loop: tuple[Node, ...]
    join_on: tuple[str, ...]
    more: Json


def variables_set_by(nodes: Sequence[Node]) -> frozenset[str]:
    """The workflow variables that these tasks set, or the ones inside them."""
    names: set[str] = set()
    for node in nodes:
        if node.kind == "SET_VARIABLE":
            names.update(node.inputs)
        for inner in (*node.forks, *node.cases, node.loop):
            names |= variables_set_by(inner)
    return frozenset(names)


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A workflow definition that has the shape Conductor takes."""

    name: str
    version: int | None
    tasks: tuple[Node, ...]
    outputs: Json
    mentions_workspaces: bool


def read_definition(document: object) -> Definition:
    """Raises TaskDefinitionError naming the field that no workflow definition has like that."""
    if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
        raise TaskDefinitionError(
            f"{shown(document)} is no workflow definition: it has no name",
            fix="give Conductor's WorkflowDef, such as `perago extract` writes",
        )
    reader = _Reader(f"workflow {document['name']!r}")
    version = document.get("version")
    return Definition(
        name=document["name"],
        version=version if isinstance(version, int) else None,
        tasks=reader.nodes(document.get("tasks"), "tasks"),
        outputs=reader.fields(document.get("outputParameters"), "outputParameters"),
        mentions_workspaces=_mentions_workspaces(document.get("tasks")),
    )


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where
        self._references: set[str] = set()

    def nodes(self, tasks: object, place: str) -> tuple[Node, ...]:
        listed = enumerate(self._list(tasks, place))
        return tuple(self._node(task, f"{place}[{index}]") for index, task in listed)

    def fields(self, value: object, place: str) -> Json:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._wrong(place, value, "an object")
        return value

    def _node(self, task: object, place: str) -> Node:
        given = self.fields(task, place)
        reference = self._text(given.get("taskReferenceName"), f"{place}.taskReferenceName")
        if reference in self._references:
            raise TaskDefinitionError(
                f"{self._where}: two tasks have the taskReferenceName {reference!r}",
                fix="give each task a reference of its own",
            )
        self._references.add(reference)
        cases = self.fields(given.get("decisionCases"), f"{place}.decisionCases")
        return Node(
            reference=reference,
            name=str(given.get("name") or reference),
            kind=self._text(given.get("type") or "SIMPLE", f"{place}.type"),
            inputs=self.fields(given.get("inputParameters"), f"{place}.inputParameters"),
            optional=bool(given.get("optional")),
            forks=tuple(
                self.nodes(branch, f"{place}.forkTasks[{index}]")
                for index, branch in enumerate(
                    self._list(given.get("forkTasks"), f"{place}.forkTasks")
                )
            ),
            cases=(
                *(self.nodes(c, f"{place}.decisionCases.{name}") for name, c in cases.items()),
                self.nodes(given.get("defaultCase"), f"{place}.defaultCase"),
            ),
            loop=self.nodes(given.get("loopOver"), f"{place}.loopOver"),
            join_on=tuple(map(str, self._list(given.get("joinOn"), f"{place}.joinOn"))),
            more={name: value for name, value in given.items() if name not in _NESTED},
        )

    def _list(self, value: object, place: str) -> Sequence[object]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self._wrong(place, value, "a list")
        return value

    def _text(self, value: object, place: str) -> str:
        if not isinstance(value, str) or not value:
            raise self._wrong(place, value, "text")
        return value

    def _wrong(self, place: str, value: object, wanted: str) -> TaskDefinitionError:
        return TaskDefinitionError(
            f"{self._where}: {place} is {shown(value)}", fix=f"make {place} {wanted}"
        )


def _mentions_workspaces(value: object) -> bool:
    if isinstance(value, str):
        return "${" in value and ".workspace" in value
    if isinstance(value, Mapping):
        return "workspace" in value or any(map(_mentions_workspaces, value.values()))
    return isinstance(value, list) and any(map(_mentions_workspaces, value))
