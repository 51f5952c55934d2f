"""Mistake: no return annotation."""

from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(
    name="broken.untyped_result",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
def clean(ws: Path, params: CleanParams):
    return CleanResult(songs=0)
