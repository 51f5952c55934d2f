"""Tasks that try what a task may not do to the repository it works in."""

import shutil
from pathlib import Path

from pydantic import BaseModel

from perago import RetryPolicy, TaskControls, WorkspaceSpec, pipeline, task

FENCE = "_lakefs_actions/perago_fence.yaml"


class Params(BaseModel):
    pass


class Result(BaseModel):
    saw: list[str]


def everything(**more: object) -> dict[str, object]:
    controls = TaskControls(retry=RetryPolicy(count=0))
    workspace = WorkspaceSpec(prefix="/")
    return {
        "owner_email": "data@example.com",
        "controls": controls,
        "workspace": workspace,
        **more,
    }


@task(name="lakefs.wipe", **everything())
def wipe(files: Path, params: Params) -> Result:
    """Remove all there is to see, and leave one file."""
    del params
    saw = sorted(str(path.relative_to(files)) for path in files.rglob("*") if path.is_file())
    for path in files.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (files / "left.txt").write_text("left")
    return Result(saw=saw)


@task(name="lakefs.disarm", **everything())
def disarm(files: Path, params: Params) -> Result:
    """Put another action where the fence is."""
    del params
    (files / FENCE).parent.mkdir()
    (files / FENCE).write_text("name: no fence at all\non:\n  pre-merge:\nhooks: []\n")
    return Result(saw=[])


wiping = pipeline("wiping", [wipe])
disarming = pipeline("disarming", [disarm])
