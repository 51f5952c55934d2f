"""Mistake: a step's param has a value of the wrong type."""

from pydantic import BaseModel

from perago import pipeline, task


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(name="broken.wrong_param_value", owner_email="data@example.com")
def clean(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)


songs = pipeline("songs", [clean.with_params(min_seconds="half a minute")])
