"""Mistake: a task name that is a path."""

from pydantic import BaseModel

from perago import task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(name="broken/clean", owner_email="data@example.com")
def clean(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)
