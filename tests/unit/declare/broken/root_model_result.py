"""Mistake: the result is a RootModel."""

from pathlib import Path

from pydantic import BaseModel, RootModel

from perago import WorkspaceSpec, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class Songs(RootModel[list[str]]):
    pass


@task(
    name="broken.root_model_result",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
def clean(ws: Path, params: CleanParams) -> Songs:
    return Songs([])
