"""Code a type checker must refuse: at each line that ends in ``# wrong``, and nowhere else."""

from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, WorkspaceSpec, pipeline, task


class P(BaseModel):
    pass


class R(BaseModel):
    songs: int = 0


SPEC = WorkspaceSpec(prefix="songs")


@task(name="typing.workspace", owner_email="a@example.com", workspace=SPEC)
def right(ws: Path, params: P) -> R:
    return R()


@task(name="typing.no_params", owner_email="a@example.com", workspace=SPEC)  # wrong
def no_params(ws: Path) -> R:
    return R()


@task(name="typing.extra", owner_email="a@example.com", workspace=SPEC)  # wrong
def extra(ws: Path, params: P, more: int) -> R:
    return R()


@task(name="typing.text", owner_email="a@example.com", workspace=SPEC)  # wrong
def text_workspace(ws: str, params: P) -> R:
    return R()


@task(name="typing.no_spec", owner_email="a@example.com")  # wrong
def no_spec(ws: Path, params: P) -> R:
    return R()


@task(name="typing.dict_params", owner_email="a@example.com")  # wrong
def dict_params(params: dict[str, int]) -> R:
    return R()


@task(name="typing.int_result", owner_email="a@example.com")  # wrong
def int_result(params: P) -> int:
    return 0


@task(name="typing.asynchronous", owner_email="a@example.com")  # wrong
async def asynchronous(params: P) -> R:
    return R()


@task(name="typing.no_owner")  # wrong
def no_owner(params: P) -> R:
    return R()


@task(name="typing.unknown", owner_email="a@example.com", retries=3)  # wrong
def unknown(params: P) -> R:
    return R()


right(P())  # wrong
right(Path(), R())  # wrong
misspelt = right.result.song  # wrong
RetryPolicy(count="three")  # wrong
RetryPolicy(counts=3)  # wrong
pipeline("songs", [right(Path(), P())])  # wrong
