"""Code a type checker must accept."""

from pathlib import Path
from typing import assert_type

from pydantic import BaseModel

from perago import (
    PublishBudget,
    RetryPolicy,
    Task,
    TaskControls,
    TimeoutPolicy,
    WorkspaceSpec,
    forbid_glob,
    pipeline,
    require_glob,
    task,
)


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(
    name="typing.clean",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(
        prefix="songs", pre=[require_glob("raw/*.jsonl", min_count=1)], post=(forbid_glob("*.tmp"),)
    ),
    controls=TaskControls(
        retry=RetryPolicy(count=2, logic="FIXED"), timeout=TimeoutPolicy(response_seconds=60)
    ),
)
def clean(ws: Path, params: CleanParams) -> CleanResult:
    return CleanResult(songs=len(list(ws.iterdir())))


@task(name="typing.tell", owner_email="data@example.com", description="Tell.", strict_params=True)
def tell(params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)


assert_type(clean, Task[[Path, CleanParams], CleanParams, CleanResult])
assert_type(clean(Path(), CleanParams()), CleanResult)
assert_type(tell(CleanParams()), CleanResult)
assert_type(tell.parse_params({}), CleanParams)
assert_type(clean.result.songs, int)
assert_type(clean.with_params(min_seconds=1).result.songs, int)
assert_type(PublishBudget.default_for(600).publish_seconds, int)

songs = pipeline("songs", [clean, tell.with_params(min_seconds=clean.result.songs)])
