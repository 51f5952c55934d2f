"""What a Spark task writes: the same on both kinds of store, by real Spark."""

import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from support.spark import HadoopFiles, SparkRig, numbers, values, with_table, write

from perago import require_table
from perago.model.outcome import PublishPath

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

LINE = '{"n": 1, "word": "one"}\n'


@pytest.fixture
def place(spark_driver, tmp_path):
    with closing(SparkRig(tmp_path, *spark_driver)) as opened:
        yield opened


# --- how a table is written ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"), [("overwrite", [2]), ("append", [1, 2]), ("ignore", [1])]
)
@pytest.mark.core
def test_a_mode_of_writing_means_what_it_always_does(place, mode, expected):
    with_table(place, 1)
    before = place.objects()

    def body(ws):
        write(numbers(ws, 2), ws.output("t"), mode)
        return values(ws.spark, ws.output("t"))

    assert place.answer(body) == expected, "what was written can be read back"
    assert [row["n"] for row in place.rows("t")] == expected
    assert len(place.objects()) == len(expected), "nothing but data is published"
    assert (place.objects() == before) == (mode == "ignore")
    place.assert_nothing_left()


@pytest.mark.core
def test_writing_a_table_that_is_there_already_is_an_error_unless_a_mode_says_otherwise(place):
    with_table(place, 1)
    assert "already exists" in place.failure(lambda ws: write(numbers(ws, 2), ws.output("t")))


def test_the_same_rows_in_new_files_are_a_change(place):
    with_table(place, 1)
    before = place.objects()
    outcome = place.run(lambda ws: write(numbers(ws, 1), ws.output("t"), "overwrite"))
    assert outcome.published.path is PublishPath.MERGED
    assert place.objects() != before
    assert place.rows("t") == [{"n": 1}]


@pytest.mark.parametrize("said_by", ["static", "option", "setting"])
def test_overwriting_a_partitioned_table(place, said_by):
    def first(ws):
        rows = ws.spark.sql("select * from values (1, 'a'), (2, 'b'), (3, 'c') as t(n, p)")
        rows.coalesce(1).write.partitionBy("p").parquet(ws.output("deep/t"))

    place.answer(first)
    before = place.objects()

    def again(ws):
        rows = ws.spark.sql("select 20 as n, 'b' as p union all select 40, 'd'").coalesce(1)
        writer = rows.write.mode("overwrite").partitionBy("p")
        if said_by == "option":
            writer = writer.option("partitionOverwriteMode", "dynamic")
        if said_by == "setting":
            ws.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        writer.parquet(ws.output("deep/t"))
        return ws.spark.read.parquet(ws.output("deep/t")).count()

    new = [{"n": 20, "p": "b"}, {"n": 40, "p": "d"}]
    kept = [] if said_by == "static" else [{"n": 1, "p": "a"}, {"n": 3, "p": "c"}]
    assert place.answer(again) == len(new + kept)
    by_partition = sorted(place.rows("deep/t"), key=lambda row: row["p"])
    assert by_partition == sorted(new + kept, key=lambda row: row["p"])
    untouched = [key for key in before if "/p=a/" in key or "/p=c/" in key] if kept else []
    assert sorted(set(place.objects()) & set(before)) == untouched, "the rest is as it was"
    assert len(place.objects()) == len(new + kept), "one file for each, and no stray object"


@pytest.mark.parametrize("path", ["my table", "100% of it", "ä/ö=ü", "plus+and&more"])
def test_a_table_s_name_may_have_signs_that_addresses_escape(place, path):
    with_table(place, 1, path=path)

    def append(ws):
        write(numbers(ws, 2), ws.output(path), "append")
        return ws.table(path).count()

    assert place.answer(append) == 1
    assert all(key.startswith(f"{path}/part-") for key in place.objects())
    assert place.answer(lambda ws: ws.table(path).count()) == 2


def test_a_partition_s_value_may_have_signs_that_paths_escape(place):
    def body(ws):
        rows = ws.spark.sql("select 1 as n, '10:30 a/b 5%' as p").coalesce(1)
        rows.write.mode("append").partitionBy("p").parquet(ws.output("t"))
        return [row.p for row in ws.spark.read.parquet(ws.output("t")).collect()]

    assert place.answer(body) == ["10:30 a/b 5%"]
    assert place.answer(body) == ["10:30 a/b 5%"] * 2
    (folder,) = {key.split("/")[1] for key in place.objects()}
    assert place.answer(lambda ws: ws.table(f"t/{folder}").count()) == 2


def test_outputs_may_lie_in_one_another(place):
    with_table(place, 1, path="all/kept")
    before = place.objects()

    def body(ws):
        write(numbers(ws, 2), ws.output("all/new"))
        above = ws.output("all")
        return values(ws.spark, f"{above}/kept") + values(ws.spark, f"{above}/new")

    assert place.answer(body) == [1, 2]
    assert place.rows("all/kept") == [{"n": 1}]
    assert place.rows("all/new") == [{"n": 2}]
    assert set(before) < set(place.objects())


def test_overwriting_what_lies_above_takes_all_below_with_it(place):
    with_table(place, 1, path="all/old")

    def body(ws):
        write(numbers(ws, 2), ws.output("all/new"))
        write(numbers(ws, 3), ws.output("all"), "overwrite")

    place.answer(body)
    assert place.rows("all") == [{"n": 3}]


@pytest.mark.core
def test_what_a_body_removes_is_removed_from_the_branch(place):
    with_table(place, 1, path="gone")
    with_table(place, 2, path="kept")

    def body(ws):
        HadoopFiles(ws.spark).remove(ws.output("gone"))

    place.answer(body)
    assert place.objects("gone/") == []
    assert place.rows("kept") == [{"n": 2}]


@pytest.mark.parametrize(
    ("kind", "said_by"),
    [("json", "option"), ("json", "setting"), ("orc", "option")],
)
def test_single_partitions_are_overwritten_in_every_format(place, kind, said_by):
    def written(ws, rows):
        frame = ws.spark.createDataFrame(rows, "word string, p string").coalesce(1)
        return frame.write.partitionBy("p").format(kind)

    def first(ws):
        written(ws, [("old", "a"), ("old", "b")]).save(ws.output("t"))

    def again(ws):
        writer = written(ws, [("new", "b")]).mode("overwrite")
        if said_by == "option":
            writer = writer.option("partitionOverwriteMode", "dynamic")
        else:
            ws.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        writer.save(ws.output("t"))
        written(ws, [("more", "a")]).mode("append").save(ws.output("t"))

    place.answer(first)
    place.answer(again)
    found = place.answer(lambda ws: sorted([row[0], row.p] for row in ws.table("t").collect()))
    assert found == [["more", "a"], ["new", "b"], ["old", "a"]]
    assert len(place.objects()) == 3


def test_a_body_may_read_and_write_in_threads(place):
    place.bench.write({"raw/a.json": LINE, "raw/b.json": LINE, "more/c.json": LINE})

    def body(ws):
        problems = []

        def work(number):
            try:
                begin.wait()
                ws.table("raw").write.parquet(ws.output(f"t{number}"))
            except Exception as error:  # noqa: BLE001 - told below
                problems.append(str(error))

        begin = threading.Barrier(4)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return problems

    assert place.answer(body) == []
    assert {key.split("/")[0] for key in place.objects()} == {"raw", "more", "t0", "t1", "t2", "t3"}


# --- what is looked at before it is published ----------------------------------------------------


def test_a_check_reads_what_is_there_whatever_settings_the_body_has_made(place):
    def body(ws):
        ws.spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
        write(numbers(ws, 1, 2, 3), ws.output("t"))
        HadoopFiles(ws.spark).write(f"{ws.output('t')}/part-9.parquet", "no Parquet at all")

    assert "the table 't' can't be read" in place.failure(body, post=[require_table("t", rows=3)])


def test_a_check_reads_what_is_there_whatever_the_body_has_cached(place):
    def body(ws):
        files, table = HadoopFiles(ws.spark), ws.output("t")
        for name in ("one", "two"):
            files.write(f"{table}/{name}.json", LINE)
        ws.spark.read.json(table).cache().count()
        files.remove(f"{table}/two.json")

    reason = place.failure(body, post=[require_table("t", rows=(2, 2))])
    assert "1 row found, at least 2 needed" in reason


def test_a_table_s_columns_are_those_of_all_its_files(place):
    def body(ws):
        write(numbers(ws, 1), ws.output("t"))
        write(numbers(ws, 2).selectExpr("n", "n * 2 as m"), ws.output("t"), "append")
        write(numbers(ws, 3), ws.output("t"), "append")

    place.answer(body, post=[require_table("t", columns=["n", "m"], rows=(3, 3))])


def test_a_table_is_checked_as_its_options_read_it(place):
    def body(ws):
        rows = [(1, "two\nlines"), (2, "one")]
        for name, given in {"songs": rows, "empty": []}.items():
            frame = ws.spark.createDataFrame(given, "id int, title string").coalesce(1)
            frame.write.csv(ws.output(name), header=True)
        write(numbers(ws, 1, 3), ws.output("plays"))

    as_written = {"header": True, "multiLine": True, "inferSchema": True}
    columns = {"id": "int", "title": "string"}
    songs = require_table("songs", rows=(2, 2), columns=columns, options=as_written)
    empty = require_table("empty", rows=1, options=as_written)
    plays = require_table("plays", references={"n": "songs:id"})
    assert "0 rows found, at least 1 needed" in place.failure(body, post=[songs, empty])
    reason = place.failure(body, post=[songs, plays])
    assert "require_table('plays', references={'n': 'songs:id'}): 1 row" in reason
    place.answer(body, post=[songs])


# --- what may not be kept ------------------------------------------------------------------------


def test_a_table_whose_files_name_the_staging_area_is_refused_with_the_reason(place):
    def body(ws):
        HadoopFiles(ws.spark).write(f"{ws.output('ice')}/metadata/v1.metadata.json")

    reason = place.failure(body)
    assert "'ice/metadata/v1.metadata.json' is part of a table in the format Iceberg" in reason
    assert "absolute paths" in reason
    assert "format 'iceberg' can't be kept" in place.failure(
        lambda ws: ws.table("ice", format="iceberg")
    )


def test_what_spark_leaves_beside_the_data_is_not_published(place):
    def body(ws):
        write(numbers(ws, 1), ws.output("t"))
        files = HadoopFiles(ws.spark)
        for name in ("_temporary/0/x", "p=1/.spark-staging-7/x", ".part-0.parquet.crc", "_SUCCESS"):
            files.write(f"{ws.output('t')}/{name}")
        files.make_folder(f"{ws.output('t')}/empty/folder")

    place.answer(body)
    (only,) = place.objects()
    assert only.endswith(".parquet")


def test_what_was_there_before_stays_though_spark_would_not_leave_it(place):
    place.bench.write({"t/_SUCCESS": "", "t/.part.crc": "x", "t/x.json": LINE})
    before = place.objects()
    outcome = place.run(lambda ws: ws.output("t"))
    assert outcome.published.path is PublishPath.UNCHANGED
    place.answer(lambda ws: ws.table("t").write.mode("append").json(ws.output("t")))
    assert set(before) < set(place.objects())


def test_a_stream_s_own_log_is_refused_and_its_batches_are_not(place, tmp_path):
    place.bench.write({"raw/a.json": LINE})

    def streamed(ws):
        stream = ws.spark.readStream.schema("n int, word string").json(ws.input("raw"))
        return stream.writeStream.trigger(availableNow=True)

    def by_file_sink(ws):
        sink = streamed(ws).option("checkpointLocation", str(tmp_path / "one")).format("parquet")
        sink.start(ws.output("t")).awaitTermination()

    def by_batch(ws):
        def take(batch, number):
            del number
            batch.write.mode("append").parquet(ws.output("t"))

        sink = streamed(ws).option("checkpointLocation", str(tmp_path / "two"))
        sink.foreachBatch(take).start().awaitTermination()

    reason = place.failure(by_file_sink)
    assert "'t/_spark_metadata/0' is the log of a streaming query's file sink" in reason
    assert "foreachBatch" in reason
    place.answer(by_batch)
    assert place.rows("t") == [{"n": 1, "word": "one"}]


@pytest.mark.parametrize("spark_driver", ["embedded"], indirect=True)
def test_a_link_in_the_place_of_a_table_is_refused(place, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.txt").write_text("not the task's")

    def body(ws):
        Path(ws.output("t").removeprefix("file://")).symlink_to(tmp_path / "elsewhere")

    assert "'t' is neither a file nor a directory" in place.failure(body)


def test_success_files_are_kept_if_a_setting_says_so(place):
    spark = place.engines["spark"]
    place.engines = {"spark": replace(spark, keep_success=True)}

    def body(ws):
        # As that setting has it from the start.
        HadoopFiles(ws.spark).set("mapreduce.fileoutputcommitter.marksuccessfuljobs", "true")
        write(numbers(ws, 1), ws.output("t"))

    place.answer(body)
    assert place.objects()[0] == "t/_SUCCESS"
    assert len(place.objects()) == 2

    place.engines = {"spark": spark}
    place.answer(lambda ws: write(numbers(ws, 2), ws.output("t"), "overwrite"))
    assert [key for key in place.objects() if not key.endswith(".parquet")] == []


# --- on lakeFS -----------------------------------------------------------------------------------


@pytest.mark.parametrize("spark_driver", ["lakeFS"], indirect=True)
def test_overwriting_single_partitions_in_sql_is_refused_rather_than_done_wrongly(place):
    def body(ws):
        spark = ws.spark
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        spark.sql(
            "create table songs (n int, p string) using parquet partitioned by (p) "
            f"location '{ws.output('t')}'"
        )
        spark.sql("insert overwrite songs values (1, 'a')")

    assert "dynamic" in place.failure(body).lower()
