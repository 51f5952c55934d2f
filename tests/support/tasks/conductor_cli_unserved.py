"""A task that no worker of the tests has. Its name is this test process's own."""

import os
from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, pipeline, task

WHO = os.environ.get("PYTEST_XDIST_WORKER", "alone")


class Nothing(BaseModel):
    pass


@task(name=f"{WHO}.cli.unserved", owner_email="tests@example.com", workspace=WorkspaceSpec())
def unserved(files: Path, params: Nothing) -> Nothing:
    (files / "never.txt").touch()
    return params


waiting = pipeline(f"{WHO}_cli_waiting", [unserved])
