"""Tasks whose lineage is looked at: one on files, one on Spark, one that dies once."""

import json
import os
import signal
from pathlib import Path

from pydantic import BaseModel

from perago import (
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    WorkspaceSpec,
    pipeline,
    require_table,
    task,
)


class Nothing(BaseModel):
    pass


class Death(BaseModel):
    marker: str = ""


@task(name="lineage.ingest", owner_email="d@example.com", workspace=WorkspaceSpec(prefix="songs"))
def ingest(ws: Path, params: Nothing) -> Nothing:
    (ws / "raw").mkdir()
    rows = [json.dumps({"id": number, "seconds": number % 7}) for number in range(20)]
    (ws / "raw" / "songs.jsonl").write_text("\n".join(rows))
    return params


@task(
    name="lineage.clean",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(
        prefix="songs",
        pre=[require_table("raw", rows=20)],
        post=[require_table("clean", unique=["id"], where="seconds > 0")],
    ),
)
def clean(ws: SparkWorkspace, params: Nothing) -> Nothing:
    songs = ws.spark.read.json(ws.input("raw")).where("seconds > 0")
    songs.coalesce(1).write.parquet(ws.output("clean"))
    return params


@task(
    name="lineage.die",
    owner_email="d@example.com",
    workspace=WorkspaceSpec(),
    controls=TaskControls(retry=RetryPolicy(count=1, delay_seconds=0)),
)
def die_once(ws: Path, params: Death) -> Nothing:
    if not Path(params.marker).exists():
        Path(params.marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (ws / "lived").touch()
    return Nothing()


songs = pipeline("songs", [ingest, clean])
mortal = pipeline("mortal", [die_once])
