"""Mistake: the body is async."""

from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(
    name="broken.async_body",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
async def clean(ws: Path, params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)
