"""Mistake: the workspace is a str."""

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(
    name="broken.wrong_workspace_type",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
def clean(ws: str, params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)
