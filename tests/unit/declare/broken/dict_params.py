"""Mistake: params are a dict, not a model."""

from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class CleanResult(BaseModel):
    songs: int


@task(
    name="broken.dict_params",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
def clean(ws: Path, params: dict[str, float]) -> CleanResult:
    return CleanResult(songs=0)
