"""The same pipeline wherever its data are and whoever computes: equal results, row by row."""

import functools
import json
from contextlib import ExitStack, closing, contextmanager

import pytest
from spark_rig import ON_LOOPBACK, SparkPlace, engines_for, settings_for

from perago.demo.songs.events import Amount, write_catalogue, write_events
from perago.demo.songs.tasks import clean, rank

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

FIRST = "embedded, local[2]"
OTHERS = ("lakeFS, local[2]", "lakeFS, a cluster", "lakeFS, Spark Connect")
CHARTS = ("hours", "months", "places", "songs")
AMOUNT = Amount(rows=2_000, songs=12, seed=7)


@pytest.fixture(scope="module")
def come_to(request, tmp_path_factory, lakefs_server):
    """What the pipeline comes to in one of these ways; each is gone once."""

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

    @functools.cache
    def come_to(way):
        directory = tmp_path_factory.mktemp("way")
        server = None if way == FIRST else lakefs_server
        with ExitStack() as stack:
            engines = stack.enter_context(engines_of(way, directory / "home"))
            place = stack.enter_context(closing(SparkPlace(directory, engines, server)))
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
