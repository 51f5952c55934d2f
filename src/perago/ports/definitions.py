"""What an orchestrator has registered of tasks and workflows, as the JSON it exchanges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Definitions(Protocol):
    """Raises OrchestratorRefusedError, with the server's words, for what it won't have."""

    def task(self, name: str) -> Mapping[str, Any] | None:
        """The task's definition; None if there is none."""
        ...

    def workflow(self, name: str, version: int | None = None) -> Mapping[str, Any] | None:
        """The workflow's definition of that version, or its latest; None if there is none."""
        ...

    def push_task(self, definition: Mapping[str, Any]) -> None:
        """Register it, in place of the one of that name."""
        ...

    def push_workflow(self, definition: Mapping[str, Any]) -> None:
        """Register it, in place of the one of that name and version.

        Workflows that were started before go on as they began.
        """
        ...
