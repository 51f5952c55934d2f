"""A workspace-free task module for perago 0.6.1 that knows its params and no others."""

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, task


class Song(BaseModel):
    song_id: str
    seconds: int


class ValidateParams(BaseModel):
    song: Song
    min_seconds: int = 30


class ValidateOutput(BaseModel):
    valid: bool
    reason: str | None = None


@task(
    name="metadata.validate",
    owner_email="metadata@example.com",
    controls=TaskControls(retry=RetryPolicy(count=0)),
    strict_params=True,
)
def validate_metadata(params: ValidateParams) -> ValidateOutput:
    if params.song.seconds < params.min_seconds:
        return ValidateOutput(valid=False, reason=f"{params.song.song_id} is too short")
    return ValidateOutput(valid=True)
