"""Mistake: a step takes the result of a later one."""

from pydantic import BaseModel

from perago import pipeline, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(name="broken.later_result.clean", owner_email="data@example.com")
def clean(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)


@task(name="broken.later_result.rank", owner_email="data@example.com")
def rank(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)


songs = pipeline("songs", [clean.with_params(min_seconds=rank.result.songs), rank])
