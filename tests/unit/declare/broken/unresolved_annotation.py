"""Mistake: a name of the signature is only imported for type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel

from perago import WorkspaceSpec, task

if TYPE_CHECKING:
    from pathlib import Path


class CleanParams(BaseModel):
    min_seconds: float = 30.0


class CleanResult(BaseModel):
    songs: int


@task(
    name="broken.unresolved_annotation",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
)
def clean(ws: Path, params: CleanParams) -> CleanResult:
    return CleanResult(songs=0)
