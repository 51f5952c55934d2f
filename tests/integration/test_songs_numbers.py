"""The songs pipeline computes what plain SQL on the raw lines says, to the last listen."""

from contextlib import closing

import pytest
from support.songs_in_sql import SongsInSql
from support.spark import bare_session

from perago.demo.songs import listens as pipeline
from perago.demo.songs.events import Amount, write_catalogue, write_events

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the socket of every collect() to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

AMOUNTS = {
    "few rows": (Amount(rows=3_000, songs=12, seed=7), 30.0, 7),
    "several files": (Amount(rows=30_000, songs=300, seed=20), 45.5, 2),
}


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    settings = {
        "spark.sql.shuffle.partitions": "4",
        # Far from UTC, and with summer time in between: nothing may depend on it.
        "spark.sql.session.timeZone": "America/New_York",
    }
    with bare_session(tmp_path_factory.mktemp("spark"), **settings) as session:
        yield session


@pytest.fixture(scope="module", params=AMOUNTS.values(), ids=AMOUNTS)
def songs(request, spark, tmp_path_factory):
    """A directory with what the pipeline's tasks leave, and the same numbers in SQL."""
    amount, min_seconds, max_days_late = request.param
    directory = tmp_path_factory.mktemp("songs")
    write_catalogue(directory / "catalogue" / "songs.jsonl", amount)
    write_events(directory / "raw", amount)
    events = pipeline.read_events(spark, str(directory / "raw"))
    fates = pipeline.sort_out(events, min_seconds=min_seconds, max_days_late=max_days_late)
    pipeline.write_sorted_out(fates, str(directory / "events"))
    kept = spark.read.parquet(str(directory / "events" / "fate=kept"))
    catalogue = spark.read.json(str(directory / "catalogue"))
    pipeline.rank_songs(kept, catalogue).write.parquet(str(directory / "ranking"))
    in_sql = SongsInSql(directory, min_seconds=min_seconds, max_days_late=max_days_late)
    with closing(in_sql):
        yield directory, in_sql


def rows_of(frame):
    return [row.asDict() for row in frame.collect()]


@pytest.fixture
def kept(spark, songs):
    return spark.read.parquet(str(songs[0] / "events" / "fate=kept"))


@pytest.fixture
def ranking(spark, songs):
    return spark.read.parquet(str(songs[0] / "ranking"))


def test_every_event_has_the_fate_that_sql_says(spark, songs):
    directory, in_sql = songs
    counts = pipeline.count_fates(spark.read.parquet(str(directory / "events")))
    assert counts == in_sql.fates()
    assert all(counts.values()), "no fate is left untried"


def test_every_month_s_songs_sessions_and_seconds_are_what_sql_says(ranking, songs):
    assert rows_of(ranking.orderBy("month", "place")) == songs[1].ranking()


def test_what_the_charts_show_is_what_sql_says(ranking, kept, songs):
    in_sql = songs[1].ranking()
    assert rows_of(pipeline.count_hours(kept)) == songs[1].hours()
    assert rows_of(pipeline.top_of_months(ranking, 3)) == [r for r in in_sql if r["place"] <= 3]
    months = rows_of(pipeline.sum_months(ranking))
    assert len(months) == 6
    for month in months:
        its_songs = [row for row in in_sql if row["month"] == month["month"]]
        for name in ("listens", "sessions", "seconds"):
            assert month[name] == sum(row[name] for row in its_songs)
    best = rows_of(pipeline.top_songs(ranking, 1))[0]
    totals = {}
    for row in in_sql:
        totals[row["song_id"]] = totals.get(row["song_id"], 0) + row["listens"]
    assert (best["song_id"], best["listens"]) == min(totals.items(), key=lambda s: (-s[1], s[0]))


def test_which_delivery_of_an_event_counts_does_not_depend_on_how_rows_are_spread(spark, tmp_path):
    write_events(tmp_path, Amount(rows=3_000, songs=12, seed=5))
    events = pipeline.read_events(spark, str(tmp_path))
    spread = [events.coalesce(1), events.repartition(5), events.orderBy("seconds", "event_id")]
    fates = [
        rows_of(
            pipeline.sort_out(rows, min_seconds=30, max_days_late=7)
            .where("fate != 'broken'")
            .orderBy("event_id", "fate", "received", "seconds")
        )
        for rows in spread
    ]
    assert fates[0] == fates[1] == fates[2]
