"""Formats that come as packages of their own, on either kind of store: Delta and Avro."""

from contextlib import closing

import pytest
from support.spark import SparkRig, engines_for, settings_for

from perago import require_table

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),  # the packages may have to be fetched
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PACKAGES = {
    "spark.jars.packages": (
        "io.delta:delta-spark_4.1_2.13:4.3.0,org.apache.spark:spark-avro_2.13:4.1.1"
    ),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
CHECKPOINT_EVERY = 2


@pytest.fixture(params=["embedded", "lakeFS"])
def place(request, tmp_path):
    server = request.getfixturevalue("lakefs_server") if request.param == "lakeFS" else None
    settings = settings_for(tmp_path / "home", server, conf=PACKAGES)
    with (
        engines_for(settings) as engines,
        closing(SparkRig(tmp_path, engines, server)) as opened,
    ):
        yield opened


def test_tables_of_other_formats_are_written_checked_and_read_again(place):
    def begin(ws):
        ws.spark.sql(
            f"create table delta.`{ws.output('d')}` (id bigint) using delta "
            f"tblproperties (delta.checkpointInterval = {CHECKPOINT_EVERY})"
        )
        ws.spark.range(5).write.format("avro").save(ws.output("a"))

    def go_on(ws):
        for start in range(0, 3 * CHECKPOINT_EVERY, 3):
            frame = ws.spark.range(start, start + 3, 1, 1)
            frame.write.format("delta").mode("append").save(ws.output("d"))
        ws.spark.sql(f"delete from delta.`{ws.output('d')}` where id = 0")  # noqa: S608 - ours
        return ws.table("a").count()

    place.answer(begin, post=[require_table("d", rows=0), require_table("a", rows=(5, 5))])
    found = require_table("d", rows=(5, 5), unique=["id"], fingerprint=True)
    assert place.answer(go_on, post=[found]) == 5
    assert place.answer(lambda ws: ws.table("d").count(), read_only=True) == 5
    if not place.is_lakefs:  # the log has a file that is written anew: never the store's own
        place.answer(go_on, post=[require_table("d", rows=(10, 10))])
        assert place.bench.store.verify().clean
