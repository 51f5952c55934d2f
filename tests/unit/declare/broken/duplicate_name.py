"""Mistake: two tasks of one name."""

from pydantic import BaseModel

from perago import task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(name="broken.duplicate_name", owner_email="data@example.com")
def clean(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)


@task(name="broken.duplicate_name", owner_email="data@example.com")
def clean_again(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)
