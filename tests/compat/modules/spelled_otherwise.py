"""A task module for perago 0.6.1 that writes everything in the less usual way it accepts."""

from datetime import timedelta
from pathlib import Path, PurePosixPath, PureWindowsPath

from pydantic import BaseModel

from perago import (
    PublishBudget,
    TaskControls,
    TaskExecutionError,
    TaskFailed,
    WorkspaceSpec,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    task,
)

BUDGET = PublishBudget(
    observed_merge_p99_seconds=0,
    safety_margin_seconds=0,
    lakefs_merge_timeout_seconds=10,
    conductor_completion_timeout_seconds=10,
    worker_shutdown_grace_seconds=10,
    heartbeat_interval_seconds=5,
)


class ServiceDown(TaskFailed):
    def __init__(self, service: str, code: int) -> None:
        super().__init__(reason=f"{service} answered {code}")


class SpelledParams(BaseModel):
    times: int = 1
    down: bool = False


class SpelledOutput(BaseModel):
    times: int


@task(
    name="Spelled otherwise: 曲",
    owner_email="the audio team",
    workspace=WorkspaceSpec(
        prefix=" //audio/spelled",
        pre=(
            require_dir(Path("raw")),
            require_file(PurePosixPath("raw/manifest.csv")),
            require_glob(PureWindowsPath("raw", "*.csv"), min_count=0),
        ),
        post=[forbid_glob(Path("raw") / "*.tmp"), require_glob("*.bak", min_count=0, max_count=0)],
    ),
    controls=TaskControls(
        retry={"count": "1", "delay_seconds": timedelta(seconds=1).total_seconds()},
        timeout={"response_seconds": BUDGET.response_timeout_seconds},
        publish_budget=BUDGET,
    ),
)
def spell(workspace: Path, params: SpelledParams) -> SpelledOutput:
    try:
        if params.down:
            raise ServiceDown("the spelling service", 503)
        (workspace / "spelled.txt").write_text("otherwise\n" * params.times)
    except TaskExecutionError as error:
        print(f"giving up: {error.reason}")  # noqa: T201 - what a task prints goes to its log
        raise
    return SpelledOutput(times=params.times)
