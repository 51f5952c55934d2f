"""A Spark task for runs that are disturbed: what it appends has to be there once."""

import os
from pathlib import Path

from pydantic import BaseModel

from perago import (
    PublishBudget,
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    WorkspaceSpec,
    pipeline,
    task,
)


class Nothing(BaseModel):
    pass


class Appended(BaseModel):
    rows: int


@task(
    name="spark_faults.append",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(prefix="songs"),
    controls=TaskControls(
        retry=RetryPolicy(count=10, delay_seconds=0),
        # A retry waits no longer than this for requests of a dead driver.
        publish_budget=PublishBudget(
            observed_merge_p99_seconds=1,
            safety_margin_seconds=1,
            lakefs_merge_timeout_seconds=3,
            conductor_completion_timeout_seconds=5,
            worker_shutdown_grace_seconds=10,
            heartbeat_interval_seconds=30,
        ),
    ),
)
def append(ws: SparkWorkspace, params: Nothing) -> Appended:
    del params
    rows = ws.spark.range(100, 104, 1, 2).withColumnRenamed("id", "n")
    if holds := os.environ.get("HOLD_WRITE"):
        rows = _held_once(rows, Path(holds))
    rows.write.mode("append").parquet(ws.output("t"))
    return Appended(rows=ws.spark.read.parquet(ws.output("t")).count())


def _held_once(rows, flag):
    """The first time, rows that take for ever to be written; and a file that says so."""
    if flag.exists():
        return rows
    flag.touch()
    forever = "if(n = 103, java_method('java.lang.Thread', 'sleep', 600000L), '')"
    return rows.selectExpr("n", f"{forever} as slow").select("n", "slow")


faults = pipeline("spark_faults", [append])
