"""Listening events become a ranking of songs: four tasks on one versioned workspace."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from perago import (
    PublishBudget,
    RetryPolicy,
    TaskControls,
    WorkspaceSpec,
    pipeline,
    require_file,
    require_glob,
    task,
)
from perago.demo.page import Bars, render_page

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER = "data@example.com"
QUICK_RETRY = TaskControls(
    retry=RetryPolicy(count=3, delay_seconds=1),
    # Small data: a merge that takes longer than this is lost, and nobody waits for it.
    publish_budget=PublishBudget(
        observed_merge_p99_seconds=1,
        safety_margin_seconds=2,
        lakefs_merge_timeout_seconds=5,
        conductor_completion_timeout_seconds=5,
        worker_shutdown_grace_seconds=10,
        heartbeat_interval_seconds=30,
    ),
)
_WORDS = ("amber", "blue", "cedar", "dawn", "ember", "fern", "gold", "harbour", "iris", "jade")
_START = datetime(2026, 1, 1, tzinfo=UTC)
_EVENTS_PER_FILE = 5_000
_DUPLICATED, _INCOMPLETE, _BROKEN = 0.01, 0.01, 0.005


class IngestParams(BaseModel):
    rows: int = Field(default=20_000, ge=1)
    songs: int = Field(default=60, ge=2)
    seed: int = 7


class IngestResult(BaseModel):
    events: int
    songs: int


@task(
    name="songs.ingest",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs", post=[require_glob("raw/*.jsonl"), require_file("catalogue.json")]
    ),
)
def ingest(ws: Path, params: IngestParams) -> IngestResult:
    """Write listening events with realistic dirt, and the catalogue of songs. Deterministic."""
    chance = random.Random(params.seed)  # noqa: S311 - made-up data, not a secret
    catalogue = [
        {
            "song_id": f"s{n:04d}",
            "title": f"{chance.choice(_WORDS)} {chance.choice(_WORDS)}".title(),
            "seconds": chance.randint(120, 360),
        }
        for n in range(params.songs)
    ]
    (ws / "catalogue.json").write_text(json.dumps(catalogue, indent=1))
    (ws / "raw").mkdir(exist_ok=True)
    for part, first in enumerate(range(0, params.rows, _EVENTS_PER_FILE)):
        count = min(_EVENTS_PER_FILE, params.rows - first)
        lines = (_dirty_line(chance, first + n, params.songs) for n in range(count))
        (ws / "raw" / f"part-{part:04d}.jsonl").write_text("\n".join(lines) + "\n")
    return IngestResult(events=params.rows, songs=params.songs)


def _dirty_line(chance: random.Random, number: int, songs: int) -> str:
    event: dict[str, object] = {
        "event_id": number if chance.random() > _DUPLICATED else max(0, number - 1),
        "song_id": f"s{min(int(chance.paretovariate(1.1)) - 1, songs - 1):04d}",
        "at": (_START + timedelta(minutes=chance.randrange(6 * 30 * 24 * 60))).isoformat(),
        "seconds": round(chance.expovariate(1 / 150), 1),
    }
    if chance.random() < _INCOMPLETE:
        del event[chance.choice(["song_id", "at"])]
    line = json.dumps(event)
    return line[: len(line) // 2] if chance.random() < _BROKEN else line


class CleanParams(BaseModel):
    min_seconds: float = Field(default=30.0, ge=0)


class CleanResult(BaseModel):
    kept: int
    too_short: int
    duplicates: int
    broken: int


@task(
    name="songs.clean",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs",
        pre=[require_glob("raw/*.jsonl", min_count=1)],
        post=[require_glob("clean/*.jsonl", min_count=1), require_file("quarantine.jsonl")],
    ),
)
def clean(ws: Path, params: CleanParams) -> CleanResult:
    """Parse, quarantine broken lines, drop duplicates and short listens, split by month."""
    seen: set[object] = set()
    months: defaultdict[str, list[str]] = defaultdict(list)
    counts: Counter[str] = Counter()
    with (ws / "quarantine.jsonl").open("w") as quarantine:
        for line in _raw_lines(ws):
            event = _parse(line)
            if event is None:
                counts["broken"] += 1
                quarantine.write(json.dumps({"line": line}) + "\n")
            elif event["event_id"] in seen:
                counts["duplicates"] += 1
            elif float(str(event["seconds"])) < params.min_seconds:
                counts["too_short"] += 1
            else:
                seen.add(event["event_id"])
                months[str(event["at"])[:7]].append(json.dumps(event))
    (ws / "clean").mkdir(exist_ok=True)
    for month, events in sorted(months.items()):
        (ws / "clean" / f"{month}.jsonl").write_text("\n".join(events) + "\n")
    return CleanResult(
        kept=sum(map(len, months.values())),
        too_short=counts["too_short"],
        duplicates=counts["duplicates"],
        broken=counts["broken"],
    )


def _raw_lines(ws: Path) -> Iterator[str]:
    for path in sorted((ws / "raw").glob("*.jsonl")):
        with path.open() as file:
            yield from (line.rstrip("\n") for line in file)


def _parse(line: str) -> dict[str, object] | None:
    try:
        event: dict[str, object] = json.loads(line)
    except ValueError:
        return None
    return event if {"event_id", "song_id", "at", "seconds"} <= event.keys() else None


class RankParams(BaseModel):
    top: int = Field(default=10, ge=1)


class RankResult(BaseModel):
    listens: int
    months: int


@task(
    name="songs.rank",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs",
        pre=[require_glob("clean/*.jsonl"), require_file("catalogue.json")],
        post=[require_file("ranking.json")],
    ),
)
def rank(ws: Path, params: RankParams) -> RankResult:
    """Count listens by month and song, and join the titles."""
    titles = {s["song_id"]: s["title"] for s in json.loads((ws / "catalogue.json").read_text())}
    per_month: dict[str, int] = {}
    per_song: Counter[str] = Counter()
    for path in sorted((ws / "clean").glob("*.jsonl")):
        songs = [json.loads(line)["song_id"] for line in path.read_text().splitlines()]
        per_month[path.stem] = len(songs)
        per_song.update(songs)
    top = [
        {"song_id": song, "title": titles[song], "listens": listens}
        for song, listens in sorted(per_song.items(), key=lambda item: (-item[1], item[0]))
    ][: params.top]
    (ws / "ranking.json").write_text(json.dumps({"months": per_month, "top": top}, indent=1))
    return RankResult(listens=sum(per_month.values()), months=len(per_month))


class ReportParams(BaseModel):
    title: str = "Songs, ranked"
    events: int = 0
    kept: int = 0
    too_short: int = 0
    duplicates: int = 0
    broken: int = 0


class ReportResult(BaseModel):
    page: str


@task(
    name="songs.report",
    owner_email=OWNER,
    controls=QUICK_RETRY,
    workspace=WorkspaceSpec(
        prefix="songs", pre=[require_file("ranking.json")], post=[require_file("report.html")]
    ),
)
def report(ws: Path, params: ReportParams) -> ReportResult:
    """One self-contained page with charts."""
    ranking = json.loads((ws / "ranking.json").read_text())
    fates = {
        "kept": params.kept,
        "too short": params.too_short,
        "duplicates": params.duplicates,
        "broken": params.broken,
    }
    page = render_page(
        params.title,
        f"{params.events:,} listening events, {params.kept:,} of them fit to count",
        [
            Bars("Most listened", {s["title"]: s["listens"] for s in ranking["top"]}),
            Bars("Listens per month", ranking["months"]),
            Bars("What became of the events", fates),
        ],
    )
    (ws / "report.html").write_text(page)
    return ReportResult(page="report.html")


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
            duplicates=clean.result.duplicates,
            broken=clean.result.broken,
        ),
    ],
)
