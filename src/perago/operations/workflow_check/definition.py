"""A Conductor workflow definition: the parts of it that the check needs."""

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
    """One task of a workflow. ``kind`` is its type; ``more`` are the remaining fields."""

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
    """The workflow variables that these tasks, or tasks inside them, set."""
    names: set[str] = set()
    for node in nodes:
        if node.kind == "SET_VARIABLE":
            names.update(node.inputs)
        for inner in (*node.forks, *node.cases, node.loop):
            names |= variables_set_by(inner)
    return frozenset(names)


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A well-formed workflow definition."""

    name: str
    version: int | None
    tasks: tuple[Node, ...]
    outputs: Json
    mentions_workspaces: bool


def read_definition(document: object) -> Definition:
    """Parse a WorkflowDef. Raises TaskDefinitionError naming the malformed field."""
    if not isinstance(document, Mapping) or not isinstance(document.get("name"), str):
        raise TaskDefinitionError(
            f"{shown(document)} is not a workflow definition: it has no name",
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

    def nodes(self, tasks: object, path: str) -> tuple[Node, ...]:
        listed = enumerate(self._list(tasks, path))
        return tuple(self._node(task, f"{path}[{index}]") for index, task in listed)

    def fields(self, value: object, path: str) -> Json:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._wrong(path, value, "an object")
        return value

    def _node(self, task: object, path: str) -> Node:
        given = self.fields(task, path)
        reference = self._text(given.get("taskReferenceName"), f"{path}.taskReferenceName")
        if reference in self._references:
            raise TaskDefinitionError(
                f"{self._where}: two tasks have the taskReferenceName {reference!r}",
                fix="give each task a reference of its own",
            )
        self._references.add(reference)
        cases = self.fields(given.get("decisionCases"), f"{path}.decisionCases")
        return Node(
            reference=reference,
            name=str(given.get("name") or reference),
            kind=self._text(given.get("type") or "SIMPLE", f"{path}.type"),
            inputs=self.fields(given.get("inputParameters"), f"{path}.inputParameters"),
            optional=bool(given.get("optional")),
            forks=tuple(
                self.nodes(branch, f"{path}.forkTasks[{index}]")
                for index, branch in enumerate(
                    self._list(given.get("forkTasks"), f"{path}.forkTasks")
                )
            ),
            cases=(
                *(self.nodes(c, f"{path}.decisionCases.{name}") for name, c in cases.items()),
                self.nodes(given.get("defaultCase"), f"{path}.defaultCase"),
            ),
            loop=self.nodes(given.get("loopOver"), f"{path}.loopOver"),
            join_on=tuple(map(str, self._list(given.get("joinOn"), f"{path}.joinOn"))),
            more={name: value for name, value in given.items() if name not in _NESTED},
        )

    def _list(self, value: object, path: str) -> Sequence[object]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise self._wrong(path, value, "a list")
        return value

    def _text(self, value: object, path: str) -> str:
        if not isinstance(value, str) or not value:
            raise self._wrong(path, value, "text")
        return value

    def _wrong(self, path: str, value: object, wanted: str) -> TaskDefinitionError:
        return TaskDefinitionError(
            f"{self._where}: {path} is {shown(value)}", fix=f"make {path} {wanted}"
        )


def _mentions_workspaces(value: object) -> bool:
    if isinstance(value, str):
        return "${" in value and ".workspace" in value
    if isinstance(value, Mapping):
        return "workspace" in value or any(map(_mentions_workspaces, value.values()))
    return isinstance(value, list) and any(map(_mentions_workspaces, value))
