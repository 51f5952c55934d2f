"""The same pipeline wherever its data are and whoever computes: equal results, row by row."""

import functools
import gc
import json
from contextlib import ExitStack, closing, contextmanager

import pytest
from support.spark import ON_LOOPBACK, SparkRig, engines_for, settings_for, with_table
from support.wire import FaultyWire, drop_request

from perago import require_table
from perago.demo.songs.events import Amount, write_catalogue, write_events
from perago.demo.songs.tasks import clean, rank
from perago.model.attempt import TaskStatus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

FIRST = "embedded, local[2]"
OTHERS = ("lakeFS, local[2]", "lakeFS, a cluster", "lakeFS, Spark Connect")
CHARTS = ("hours", "months", "places", "songs")
IMPATIENT = {
    "attempts.maximum": "1",
    "retry.limit": "1",
    "retry.interval": "10ms",
    "retry.throttle.limit": "1",
    "retry.throttle.interval": "10ms",
}
AMOUNT = Amount(rows=2_000, songs=12, seed=7)


@pytest.fixture(scope="module")
def engines_of(request, lakefs_server):
    """The engines that go one of these ways."""

    @contextmanager
    def engines_of(way, home):
        if way == FIRST:
            settings = settings_for(home)
        elif way == "lakeFS, local[2]":
            settings = settings_for(home, lakefs_server)
        elif way == "lakeFS, a cluster":
            address = request.getfixturevalue("spark_cluster").address
            settings = settings_for(home, lakefs_server, spark_master=address, conf=ON_LOOPBACK)
        else:
            address = request.getfixturevalue("connect_server").endpoint
            settings = settings_for(home, lakefs_server, spark_master=None, spark_remote=address)
        with engines_for(settings) as engines:
            yield engines

    return engines_of


@pytest.fixture(scope="module")
def come_to(engines_of, tmp_path_factory, lakefs_server):
    """What the pipeline comes to in one of these ways; each is gone once."""

    @functools.cache
    def come_to(way):
        directory = tmp_path_factory.mktemp("way")
        server = None if way == FIRST else lakefs_server
        with ExitStack() as stack:
            engines = stack.enter_context(engines_of(way, directory / "home"))
            place = stack.enter_context(closing(SparkRig(directory, engines, server)))
            return outcome_of_songs(place, directory / "data")

    return come_to


def outcome_of_songs(place, data):
    """The tasks' results, every published table's rows, and which files are no part of any."""
    write_catalogue(data / "catalogue" / "songs.jsonl", AMOUNT)
    write_events(data / "raw", AMOUNT)
    files = {f"songs/{path.relative_to(data)}": path for path in data.rglob("*") if path.is_file()}
    place.bench.write({key: path.read_bytes() for key, path in files.items()})
    place.bench.start(clean, rank)
    results = []
    for task in (clean, rank):
        outcome = place.attempt(task)
        assert outcome.report.completed, f"{outcome.report.reason}\n{place.trace}"
        results.append(outcome.report.output["result"])
    place.assert_nothing_left()
    written = [key for key in place.objects() if key not in files]
    lines = {name: _lines(place.files(f"songs/charts/{name}/")) for name in CHARTS}
    tables = {name: place.rows(f"songs/{name}") for name in ("events", "ranking")}
    strays = [key for key in written if not key.endswith((".parquet", ".json"))]
    return results, tables, lines, strays


def _lines(files):
    return [json.loads(line) for _, data in sorted(files.items()) for line in data.splitlines()]


@pytest.mark.parametrize("way", OTHERS)
def test_the_pipeline_comes_to_the_same(come_to, way):
    results, tables, charts, strays = come_to(way)
    expected = come_to(FIRST)
    assert results == expected[0]
    assert tables["ranking"] == expected[1]["ranking"]
    assert tables["events"] == expected[1]["events"]
    assert charts == expected[2]
    assert strays == expected[3] == []
    assert len(tables["events"]) >= AMOUNT.rows, "all of it was compared"
    assert all(charts.values())


@pytest.mark.parametrize("way", ["lakeFS, local[2]", "lakeFS, Spark Connect"])
def test_a_store_that_fails_a_check_is_not_the_data_s_fault(
    engines_of, lakefs_server, tmp_path, monkeypatch, way
):
    """Else the input would be called wrong, and the task never be tried again."""
    with (
        FaultyWire(lakefs_server.endpoint) as wire,
        engines_of(way, tmp_path / "home") as engines,
        closing(SparkRig(tmp_path, engines, lakefs_server)) as place,
    ):
        with_table(place, 1)
        open_session = type(engines["spark"].spark).open_session
        on_the_way = f"fs.s3a.bucket.{place.bench.repository}"

        def open_impatient_session(self, *given):
            session = open_session(self, *given)
            session.conf.set("fs.s3a.impl.disable.cache", "true")
            for name, value in (IMPATIENT | {"endpoint": wire.endpoint}).items():
                session.conf.set(f"{on_the_way}.{name}", value)
            return session

        monkeypatch.setattr(type(engines["spark"].spark), "open_session", open_impatient_session)
        for passing in (0, 2, 4):  # it is read first for its columns, then for its rows
            wire.clear()
            wire.on(drop_request, method="GET", path=r"\.parquet", times=None, skip=passing)
            outcome = place.run(lambda ws: ws.files(), pre=[require_table("t", where="n > 0")])
            assert not wire.unfired
            assert outcome.report.status is TaskStatus.FAILED, outcome.report.reason
            assert "checking the tables failed" in outcome.report.reason


def test_a_session_that_is_over_ends_nothing_of_the_next_one_s(engines_of, lakefs_server, tmp_path):
    """All sessions share the threads by which PySpark lets go of answers."""
    from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

    with (
        engines_of("lakeFS, Spark Connect", tmp_path / "home") as engines,
        closing(SparkRig(tmp_path, engines, lakefs_server)) as place,
    ):
        kept = []
        place.answer(lambda ws: kept.append(ws.spark))
        shared = ExecutePlanResponseReattachableIterator._get_or_create_release_thread_pool()  # noqa: SLF001 - no public way
        kept.clear()
        gc.collect()
        shared.submit(len, ()).result(10)
