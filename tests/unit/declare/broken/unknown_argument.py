"""Mistake: a misspelt argument of @task."""

from pydantic import BaseModel

from perago import task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(name="broken.unknown_argument", owner_mail="data@example.com")
def clean(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)
