"""A read-only task module for perago 0.6.1, with everything left at its default."""

from pathlib import Path

from pydantic import BaseModel

from perago import WorkspaceSpec, task


class ReportParams(BaseModel):
    title: str = "catalog"


class ReportOutput(BaseModel):
    title: str
    files: int


@task(
    name="catalog.report",
    owner_email="catalog@example.com",
    workspace=WorkspaceSpec(read_only=True),
)
def report(workspace: Path, params: ReportParams) -> ReportOutput:
    files = [path for path in workspace.rglob("*") if path.is_file() and path.name[0] != "."]
    return ReportOutput(title=params.title, files=len(files))
