"""The definitions that Conductor has registered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from perago.adapters.conductor.answers import below
from perago.adapters.conductor.api import Api
from perago.adapters.conductor.fields import document
from perago.errors import OrchestratorRefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perago.adapters.conductor.access import ConductorAccess


class ConductorDefinitions:
    """Implements :class:`~perago.ports.definitions.Definitions`."""

    def __init__(self, access: ConductorAccess) -> None:
        self._api = Api(access)

    def close(self) -> None:
        """Let go of the server; using this again connects again."""
        self._api.close()

    def task(self, name: str) -> Mapping[str, Any] | None:
        """The task's definition; None if there is none."""
        found = self._api.find(
            below("metadata", "taskdefs", name), doing=f"reading the definition of task {name!r}"
        )
        return None if found is None else document(found, "a task definition")

    def workflow(self, name: str, version: int | None = None) -> Mapping[str, Any] | None:
        """The workflow's definition of that version, or its latest; None if there is none."""
        return workflow_definition(self._api, name, version)

    def push_task(self, definition: Mapping[str, Any]) -> None:
        """Register it, in place of the one of that name."""
        self._api.send(
            "POST",
            below("metadata", "taskdefs"),
            [dict(definition)],
            doing=f"registering task {definition['name']!r}",
        )

    def push_workflow(self, definition: Mapping[str, Any]) -> None:
        """Register it, in place of the one of that name and version."""
        doing = f"registering workflow {definition['name']!r}"
        said = self._api.send("PUT", below("metadata", "workflow"), [dict(definition)], doing=doing)
        refused = _refusals_in(said)
        if refused:
            raise OrchestratorRefusedError(f"{doing}: Conductor refused: {'; '.join(refused)}")


def workflow_definition(api: Api, name: str, version: int | None) -> Mapping[str, Any] | None:
    """A registered workflow, of that version or the latest; None if there is none."""
    chosen = {} if version is None else {"version": version}
    found = api.find(
        below("metadata", "workflow", name, **chosen),
        doing=f"reading the definition of workflow {name!r}",
    )
    return None if found is None else document(found, "a workflow definition")


def _refusals_in(said: str) -> list[str]:
    """What a bulk request couldn't do: it is granted all the same."""
    try:
        answer = json.loads(said)
    except ValueError:
        answer = said
    errors = document(answer, "the answer to a bulk request").get("bulkErrorResults")
    return [str(error) for error in errors.values()] if isinstance(errors, dict) else []
