"""One step on a short lease, which writes down WHO (in the environment) ran it."""

import os
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, TimeoutPolicy, WorkspaceSpec, pipeline, task


class Nothing(BaseModel):
    pass


@task(
    name="zombie.work",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(
        retry=RetryPolicy(count=3, delay_seconds=0), timeout=TimeoutPolicy(response_seconds=4)
    ),
)
def work(ws: Path, params: Nothing) -> Nothing:
    (ws / "who.txt").write_text(os.environ["WHO"])
    return params


chain = pipeline("chain", [work])
