"""The four tasks and their pipeline.

The computation is in ``listens``, which doesn't know Perago. Here it gets a workspace, and the
guardrails that must hold before and after.
"""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel, Field

from perago import (
    PublishBudget,
    RetryPolicy,
    SparkWorkspace,
    TaskControls,
    WorkspaceSpec,
    pipeline,
    require_dir,
    require_file,
    require_glob,
    require_table,
    task,
)

from .events import Amount, write_catalogue, write_events
from .page import render_report

OWNER = "data@example.com"
QUICK_RETRY = TaskControls(
    retry=RetryPolicy(count=3, delay_seconds=1),
    # The data are small: a merge that takes longer than this counts as lost.
    publish_budget=PublishBudget(
        observed_merge_p99_seconds=1,
        safety_margin_seconds=2,
        lakefs_merge_timeout_seconds=5,
        conductor_completion_timeout_seconds=5,
        worker_shutdown_grace_seconds=10,
        heartbeat_interval_seconds=30,
    ),
)


class IngestParams(BaseModel):
    rows: int = Field(default=200_000, ge=1)
    songs: int = Field(default=200, ge=2, le=100_000)
    seed: int = 7


class IngestResult(BaseModel):
    events: int
    songs: int


@task(
    name="songs.ingest",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs", post=[require_glob("raw/*.jsonl"), require_file("catalogue/songs.jsonl")]
    ),
)
def ingest(ws: Path, params: IngestParams) -> IngestResult:
    """Write listening events with realistic errors, and the catalogue of songs. Deterministic."""
    amount = Amount(params.rows, params.songs, params.seed)
    write_catalogue(ws / "catalogue" / "songs.jsonl", amount)
    write_events(ws / "raw", amount)
    return IngestResult(events=params.rows, songs=params.songs)


class CleanParams(BaseModel):
    min_seconds: float = Field(default=30.0, ge=0)
    max_days_late: int = Field(default=7, ge=0)


class CleanResult(BaseModel):
    kept: int
    too_short: int
    late: int
    duplicate: int
    broken: int


@task(
    name="songs.clean",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs",
        pre=[require_glob("raw/*.jsonl")],
        post=[
            require_table(
                "events/fate=kept",
                rows=1,
                columns={"event_id": "bigint", "at": "timestamp_ntz", "month": "string"},
                not_null=["event_id", "listener", "song_id", "at", "received", "seconds", "month"],
                unique=["event_id"],
                where=["seconds > 0", "received >= at"],
                references={"song_id": "catalogue:song_id"},
            )
        ],
    ),
)
def clean(ws: SparkWorkspace, params: CleanParams) -> CleanResult:
    """Parse the events, set broken ones aside, deduplicate, and split the rest by month."""
    from .listens import count_fates, read_events, sort_out, write_sorted_out

    events = read_events(ws.spark, ws.input("raw"))
    fates = sort_out(events, min_seconds=params.min_seconds, max_days_late=params.max_days_late)
    write_sorted_out(fates, ws.output("events"))
    counts = count_fates(ws.spark.read.parquet(ws.output("events")))
    return CleanResult(**{fate: counts.get(fate, 0) for fate in CleanResult.model_fields})


class RankParams(BaseModel):
    top: int = Field(default=10, ge=1)


class RankResult(BaseModel):
    listens: int
    sessions: int
    months: int


@task(
    name="songs.rank",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs",
        pre=[require_dir("events/fate=kept"), require_file("catalogue/songs.jsonl")],
        post=[
            require_table(
                "ranking",
                unique=[["month", "place"], ["month", "song_id"]],
                where=["listens >= sessions", "place >= 1"],
            ),
            require_glob("charts/*/*.json", min_count=4),
        ],
    ),
)
def rank(ws: SparkWorkspace, params: RankParams) -> RankResult:
    """Find the sessions, count listens by month and song, and join the titles."""
    from .listens import count_hours, rank_songs, sum_months, top_of_months, top_songs

    listens = ws.table("events/fate=kept")
    rank_songs(listens, ws.table("catalogue")).write.mode("overwrite").parquet(ws.output("ranking"))
    ranking = ws.spark.read.parquet(ws.output("ranking"))
    charts = {
        "songs": top_songs(ranking, params.top),
        "places": top_of_months(ranking, params.top),
        "months": sum_months(ranking),
        "hours": count_hours(listens),
    }
    for name, rows in charts.items():
        rows.coalesce(1).write.mode("overwrite").json(ws.output(f"charts/{name}"))
    months = ws.spark.read.json(ws.output("charts/months")).collect()
    return RankResult(
        listens=sum(month["listens"] for month in months),
        sessions=sum(month["sessions"] for month in months),
        months=len(months),
    )


class ReportParams(BaseModel):
    title: str = "Songs, ranked"
    events: int = 0
    kept: int = 0
    too_short: int = 0
    late: int = 0
    duplicate: int = 0
    broken: int = 0


class ReportResult(BaseModel):
    page: str


@task(
    name="songs.report",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs",
        pre=[require_glob("charts/*/*.json", min_count=4)],
        post=[require_file("report.html")],
    ),
)
def report(ws: Path, params: ReportParams) -> ReportResult:
    """Write one self-contained page with charts."""
    page = render_report(
        params.title,
        fates=params.model_dump(include=set(CleanResult.model_fields)),
        **{name: _rows(ws / "charts" / name) for name in ("songs", "places", "months", "hours")},
    )
    (ws / "report.html").write_text(page)
    return ReportResult(page="report.html")


def _rows(directory: Path) -> list[dict[str, object]]:
    """The rows that Spark wrote as JSON, in order."""
    files = sorted(directory.glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


songs = pipeline(
    "songs",
    [
        ingest,
        clean,
        rank,
        report.with_params(
            events=ingest.result.events,
            kept=clean.result.kept,
            too_short=clean.result.too_short,
            late=clean.result.late,
            duplicate=clean.result.duplicate,
            broken=clean.result.broken,
        ),
    ],
)
