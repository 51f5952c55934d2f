"""A task module for perago 0.6.1 that declares all there is to declare."""

from __future__ import annotations

import csv
from datetime import date
from enum import Enum
from pathlib import Path

from pydantic import BaseModel, Field

from perago import (
    ExecutionLimits,
    PublishBudget,
    RetryPolicy,
    TaskControls,
    TaskFailed,
    TaskTerminalError,
    TimeoutPolicy,
    WorkspaceSpec,
    forbid_glob,
    require_dir,
    require_file,
    require_glob,
    task,
)


class Scale(str, Enum):  # noqa: UP042 - as modules for Python 3.10 have it
    RAW = "raw"
    NORMALISED = "normalised"


class Window(BaseModel):
    begin: date
    seconds: float = Field(gt=0, description="how long a window is")


class BuildParams(BaseModel):
    feature_set: str
    min_rows: int = Field(default=1, ge=1)
    scale: Scale = Scale.RAW
    windows: list[Window] = Field(default_factory=list)
    mood: str | None = None


class BuildOutput(BaseModel):
    row_count: int = Field(ge=0)
    feature_count: int = Field(ge=0)
    windows: list[Window]


@task(
    name="features.build",
    owner_email="features@example.com",
    description="Build features from raw rows.",
    workspace=WorkspaceSpec(
        prefix="/audio/features",
        pre=[
            require_dir("raw"),
            require_file("raw/manifest.csv"),
            require_glob("raw/**/*.csv", min_count=1, max_count=1000),
        ],
        post=[require_file("built/features.csv"), forbid_glob("**/*.tmp")],
    ),
    controls=TaskControls(
        retry=RetryPolicy(
            count=2,
            logic="EXPONENTIAL_BACKOFF",
            delay_seconds=1,
            max_delay_seconds=30,
            jitter_ms=100,
        ),
        timeout=TimeoutPolicy(
            policy="RETRY", seconds=600, response_seconds=120, poll_seconds=300, total_seconds=3600
        ),
        limits=ExecutionLimits(
            concurrent_exec_limit=4,
            rate_limit_frequency_in_seconds=1,
            rate_limit_per_frequency=100,
        ),
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=5,
            safety_margin_seconds=5,
            lakefs_merge_timeout_seconds=15,
            conductor_completion_timeout_seconds=10,
            worker_shutdown_grace_seconds=20,
            heartbeat_interval_seconds=10,
        ),
    ),
)
def build_features(workspace: Path, params: BuildParams) -> BuildOutput:
    if params.mood == "tired":
        raise TaskFailed("the feature service is tired")
    if params.mood == "hopeless":
        raise TaskTerminalError("no features will ever come of this")
    rows = [
        row
        for file in sorted((workspace / "raw").glob("**/*.csv"))
        for row in csv.reader(file.read_text().splitlines())
    ]
    built = workspace / "built"
    built.mkdir(exist_ok=True)
    (built / "features.csv").write_text(
        "".join(f"{params.scale.value},{len(row)}\n" for row in rows)
    )
    return BuildOutput(row_count=len(rows), feature_count=2, windows=params.windows)
