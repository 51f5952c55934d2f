"""Mistake: a parameter with a default value."""

from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


PARAMS = CleanParams()


@task(
    name="broken.default_value",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
def clean(ws: Path, params: CleanParams = PARAMS) -> CleanResult:
    return CleanResult(songs=0)
