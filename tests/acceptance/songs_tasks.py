"""A module of tasks that the command line's tests run: it counts lines, then totals them."""

from pathlib import Path

from pydantic import BaseModel

from perago import (
    RetryPolicy,
    TaskControls,
    TaskFailed,
    WorkspaceSpec,
    pipeline,
    require_glob,
    task,
)

ONCE = TaskControls(retry=RetryPolicy(count=0))


class CountParams(BaseModel):
    fail: bool = False


class CountResult(BaseModel):
    lines: int


@task(
    name="songs.count",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="/", pre=[require_glob("raw/*.txt")]),
    controls=ONCE,
)
def count(files: Path, params: CountParams) -> CountResult:
    """Count the lines of every raw file."""
    print("counting, with an umlaut: ü")  # noqa: T201 - what a task prints goes to its log
    if params.fail:
        raise TaskFailed("was told to fail")
    lines = sum(len(path.read_text().splitlines()) for path in (files / "raw").glob("*.txt"))
    (files / "lines.txt").write_text(f"{lines}\n")
    return CountResult(lines=lines)


class TotalParams(BaseModel):
    lines: int


@task(
    name="songs.total",
    owner_email="data@example.com",
    workspace=WorkspaceSpec(prefix="/"),
    controls=ONCE,
)
def total(files: Path, params: TotalParams) -> CountResult:
    """Write the total down."""
    (files / "total.txt").write_text(f"{params.lines}\n")
    return CountResult(lines=params.lines)


songs = pipeline("songs", [count, total.with_params(lines=count.result.lines)])
