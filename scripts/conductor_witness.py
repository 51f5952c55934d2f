"""Conductor seen without Perago: what it has registered, and what became of workflows."""

from __future__ import annotations

import json
import ssl
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import quote

if TYPE_CHECKING:
    from perago.adapters.conductor.client import ConductorConfig

ANSWER_SECONDS = 30


class ConductorWitness:
    """Its REST API, and nothing between."""

    def __init__(self, config: ConductorConfig) -> None:
        self.address = config.address
        self._trust = ssl.create_default_context(cafile=config.ca_file)
        self._headers = {"Content-Type": "application/json"}
        if config.key is not None:
            login = {"keyId": config.key, "keySecret": config.secret}
            self._headers["X-Authorization"] = self._ask("POST", "token", login)["token"]

    def task_definition(self, name: str) -> dict[str, Any]:
        return dict(self._ask("GET", f"metadata/taskdefs/{quote(name, safe='')}"))

    def workflow_definition(self, name: str) -> dict[str, Any]:
        return dict(self._ask("GET", f"metadata/workflow/{quote(name, safe='')}"))

    def workflow(self, run: str) -> dict[str, Any]:
        return dict(self._ask("GET", f"workflow/{run}?includeTasks=true"))

    def logs(self, task_id: str) -> str:
        """What a worker said of a task, in one text."""
        return "\n".join(str(one["log"]) for one in self._ask("GET", f"tasks/{task_id}/log"))

    def start(self, name: str, given: object) -> str:
        """Start a workflow with any input, as any client of Conductor can."""
        return str(self._ask("POST", "workflow", {"name": name, "input": given}))

    def runs(self, prefix: str) -> list[str]:
        """The workflows of every definition named like that."""
        queries = (quote(f"workflowType='{name}'") for name in self._names("workflow", prefix))
        found = (self._ask("GET", f"workflow/search?size=100&query={query}") for query in queries)
        return [str(one["workflowId"]) for page in found for one in page["results"]]

    def forget(self, runs: list[str], prefix: str) -> list[str]:
        """Delete these workflows, and every definition named like that; what is still there."""
        for run in runs:
            self._try("DELETE", f"workflow/{run}?reason=over")  # for one that still goes on
            self._try("DELETE", f"workflow/{run}/remove?archiveWorkflow=false")
        for name in self._names("taskdefs", prefix):
            self._try("DELETE", f"metadata/taskdefs/{quote(name, safe='')}")
        for name in self._names("workflow", prefix):
            self._try("DELETE", f"metadata/workflow/{quote(name, safe='')}/1")
        left = [run for run in runs if self._try("GET", f"workflow/{run}?includeTasks=false")]
        return [*left, *self._names("taskdefs", prefix), *self._names("workflow", prefix)]

    def _names(self, kind: str, prefix: str) -> list[str]:
        found = (str(one["name"]) for one in self._ask("GET", f"metadata/{kind}"))
        return [name for name in found if name.startswith(prefix)]

    def _try(self, method: str, path: str) -> bool:
        """Whether it was granted."""
        with suppress(HTTPError):
            self._ask(method, path)
            return True
        return False

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 - http or https, as the settings have it
            f"{self.address}/{path}",
            method=method,
            headers=self._headers,
            data=None if body is None else json.dumps(body).encode(),
        )
        with urllib.request.urlopen(  # noqa: S310
            request, timeout=ANSWER_SECONDS, context=self._trust
        ) as answer:
            text = answer.read().decode()
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text
