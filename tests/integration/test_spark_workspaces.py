"""What a Spark task may do with its workspace: the same on both kinds of store, by real Spark."""

import hashlib
import json
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as sf
from spark_rig import HadoopFiles, SparkPlace, engines_for, settings_for, spark_task

from perago import require_glob, require_table
from perago.model.outcome import PublishPath

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

LINE = '{"n": 1, "word": "one"}\n'


@pytest.fixture(scope="module", params=["embedded", "lakeFS"])
def driver(request, tmp_path_factory):
    """A Spark for one kind of store, and that lakeFS if it is one."""
    server = request.getfixturevalue("lakefs_server") if request.param == "lakeFS" else None
    home = tmp_path_factory.mktemp("spark") / "a home 100%"
    with engines_for(settings_for(home, server)) as engines:
        yield engines, server


@pytest.fixture
def place(driver, tmp_path):
    with closing(SparkPlace(tmp_path, *driver)) as opened:
        yield opened


on_embedded = pytest.mark.parametrize("driver", ["embedded"], indirect=True)
on_lakefs = pytest.mark.parametrize("driver", ["lakeFS"], indirect=True)
# What is about one kind alone stands at the two ends of this file: a process has one driver at a
# time, and starting another one takes long.


def write(frame, uri, mode="error", **options):
    frame.coalesce(1).write.mode(mode).options(**options).parquet(uri)


def values(spark, uri):
    return sorted(row[0] for row in spark.read.parquet(uri).collect())


def numbers(ws, *wanted):
    return ws.spark.range(1).select(sf.explode(sf.lit(list(wanted))).alias("n"))


def with_table(place, *wanted, path="t"):
    """Have an earlier task write a table of numbers."""
    place.answer(lambda ws: write(numbers(ws, *wanted), ws.output(path)))


# --- the embedded store's own files ---------------------------------------------------------------


def blobs(place):
    """Every file of the store's objects, by its inode: its hash."""
    objects = [p for p in (place.bench.root / "store").rglob("*") if len(p.name) >= 60]
    assert objects
    return {p.stat().st_ino: hashlib.sha256(p.read_bytes()).hexdigest() for p in objects}


def local(uri):
    return Path(uri.removeprefix("file://"))


@on_embedded
@pytest.mark.parametrize("where", ["input", "output"])
def test_spark_can_not_write_into_a_file_of_the_store(place, where):
    with_table(place, 1)
    before = blobs(place)

    def body(ws):
        (file,) = local(getattr(ws, where)("t")).glob("*.parquet")
        with_links = file.stat().st_nlink
        try:
            HadoopFiles(ws.spark).write(f"file://{file}")
        except Exception as error:  # noqa: BLE001 - Java's own
            return [with_links, "Permission denied" in str(error)]
        return [with_links, "written"]

    assert place.answer(body) == [2, True]
    assert blobs(place) == before


@on_embedded
def test_a_file_written_anew_under_its_old_name_is_a_change_and_the_old_one_stays(place):
    place.bench.write({"t/x.json": LINE})
    before, first = blobs(place), place.bench.head

    def body(ws):
        uri = f"{ws.output('t')}/x.json"
        HadoopFiles(ws.spark).remove(uri)
        HadoopFiles(ws.spark).write(uri, LINE.replace("one", "two"))

    place.answer(body)
    assert b"two" in place.files()["t/x.json"]
    assert place.bench.read(first)["t/x.json"] == LINE.encode()
    assert before.items() <= blobs(place).items()


@on_embedded
def test_what_spark_wrote_is_taken_into_the_store_without_a_second_copy(place):
    written = []

    def body(ws):
        ws.spark.range(300_000).coalesce(1).write.parquet(ws.output("big"))
        (file,) = local(ws.output("big")).glob("*.parquet")
        written.append(file.stat())

    place.answer(body)
    (stat,) = written
    assert stat.st_size > 1024**2
    (taken,) = [
        path
        for path in (place.bench.root / "store").rglob("*")
        if path.stat().st_ino == stat.st_ino
    ]
    assert taken.stat().st_nlink == 1, "the attempt's own name for it is gone"
    assert not os.access(taken, os.W_OK) or os.geteuid() == 0
    assert taken.stat().st_mode & 0o222 == 0
    assert place.bench.store.verify().clean


# --- reading -------------------------------------------------------------------------------------


def test_an_input_stays_as_it_was_at_its_commit_while_the_branch_moves_on(place):
    place.bench.write({"raw/a.jsonl": LINE})

    def read(ws):
        before = ws.table("raw").count()
        place.bench.write({"raw/b.jsonl": LINE})
        after = [ws.table("raw").count(), ws.spark.read.json(ws.input("raw")).count()]
        return [before, *after, ws.files()]

    assert place.answer(read, read_only=True) == [1, 1, 1, ["raw/a.jsonl"]]
    assert place.answer(lambda ws: ws.table("raw").count()) == 2


def test_a_table_s_format_is_told_from_its_files(place):
    kinds = ["csv", "json", "orc", "parquet", "text"]

    def write_all(ws):
        for kind in kinds:
            rows = ws.spark.sql("select 'one' as value").coalesce(1)
            rows.write.format(kind).option(
                "compression", "gzip" if kind == "json" else "none"
            ).save(ws.output(f"as/{kind}"))

    place.answer(write_all)

    def read_all(ws):
        return [ws.table(f"as/{kind}").collect()[0][0] for kind in kinds]

    assert place.answer(read_all) == ["one"] * len(kinds)
    assert "don't tell one format" in place.failure(lambda ws: ws.table("as").count())
    assert place.answer(lambda ws: ws.table("as/csv", format="csv", header="true").count()) == 0


def test_files_and_wildcards_find_what_the_input_commit_has(place):
    lines = {f"raw/{name}.jsonl": LINE for name in ("a", "b", "deep/c")}
    place.bench.write(lines | {"raw/notes.md": "?"})

    def look(ws):
        return [
            ws.files("raw/*.jsonl"),
            len(ws.files()),
            ws.spark.read.json(ws.input("raw/*.jsonl")).count(),
            ws.table("raw/?.jsonl").count(),
            ws.table("raw/{a,x}.*").count(),
            ws.table("raw/a.jsonl").count(),
        ]

    assert place.answer(look) == [["raw/a.jsonl", "raw/b.jsonl"], 4, 2, 2, 1, 1]


def test_a_prefix_that_is_nested_is_all_a_task_sees_and_writes(place):
    place.bench.write({"a/b/raw.jsonl": LINE, "a/bc/raw.jsonl": LINE, "raw.jsonl": LINE})

    def body(ws):
        write(ws.table("raw.jsonl"), ws.output("t"))
        return ws.files()

    assert place.answer(body, prefix="a/b", post=[require_table("t", rows=(1, 1))]) == ["raw.jsonl"]
    assert place.rows("a/b/t") == [{"n": 1, "word": "one"}]
    assert place.objects("a/bc/") == ["a/bc/raw.jsonl"]
    assert len(place.objects()) == 4


# --- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "expected"), [("overwrite", [2]), ("append", [1, 2]), ("ignore", [1])]
)
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


def test_what_a_body_removes_is_removed_from_the_branch(place):
    with_table(place, 1, path="gone")
    with_table(place, 2, path="kept")

    def body(ws):
        HadoopFiles(ws.spark).remove(ws.output("gone"))

    place.answer(body)
    assert place.objects("gone/") == []
    assert place.rows("kept") == [{"n": 2}]


# --- what may not be named or kept ---------------------------------------------------------------


def test_paths_that_leave_the_workspace_are_refused_and_make_no_branch(place):
    both = [
        "../x",
        "a/../../x",
        "/etc",
        "a//b",
        "./a",
        "s3a://other/x",
        "file:/etc",
        "a\\b",
        "a\nb",
    ]
    hooks = ["_lakefs_actions", "_lakefs_actions/x.yaml"]
    outputs = ["t/*", "t/{a,b}", "t?", ""]

    def body(ws):
        told = []
        for name, paths in {"input": both + hooks, "output": both + hooks + outputs}.items():
            for path in paths:
                try:
                    getattr(ws, name)(path)
                except Exception as error:  # noqa: BLE001 - its kind is what is asked for
                    told.append([name, path, type(error).__name__, repr(path) in str(error)])
                else:
                    told.append([name, path, "given"])
        return [*told, place.staging_branches]

    *told, branches = place.answer(body)
    assert [line for line in told if line[2:] != ["SparkPathError", True]] == []
    assert branches == []


def test_hooks_are_an_ordinary_name_below_a_prefix(place):
    place.answer(lambda ws: write(numbers(ws, 1), ws.output("_lakefs_actions/t")), prefix="p")
    assert place.rows("p/_lakefs_actions/t") == [{"n": 1}]


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


# --- when there is a staging branch --------------------------------------------------------------


@pytest.mark.parametrize("spec", [{}, {"read_only": True}], ids=["writes nothing", "read-only"])
def test_a_task_without_outputs_never_has_a_branch(place, spec):
    place.bench.write({"raw/a.jsonl": LINE})
    before = place.bench.head
    branches = []
    post = [require_table("raw", rows=(1, 1)), require_glob("raw/*")]

    def body(ws):
        ws.table("raw").count()
        branches.extend(place.staging_branches)

    outcome = place.run(body, post=post, **spec)
    assert outcome.report.completed, outcome
    assert branches == []
    assert "stage.branch" not in place.journal.steps()
    assert place.bench.head == before == outcome.published.ref


def test_an_output_of_a_read_only_task_is_refused(place):
    reason = place.failure(lambda ws: ws.output("t"), read_only=True)
    assert "output 't' was asked for in a read_only task" in reason


def test_the_branch_comes_with_the_first_output_and_goes_if_nothing_was_written(place):
    seen = []

    def body(ws):
        seen.append(len(place.staging_branches))
        ws.output("a")
        ws.output("b")
        seen.append(len(place.staging_branches))

    before = place.bench.head
    outcome = place.run(body)
    assert seen == [0, 1]
    assert outcome.published.path is PublishPath.UNCHANGED
    assert place.bench.head == before
    place.assert_nothing_left()


def test_who_no_longer_counts_gets_no_branch_to_write_to(place):
    seen = []

    def body(ws):
        (run,) = place.bench.queue.runs()
        place.bench.queue.cancel(run.id, "no longer wanted")
        try:
            ws.output("t")
        finally:
            seen.extend(place.staging_branches)

    assert place.failure(body).startswith("stale_attempt: ")
    assert seen == []


# --- failures ------------------------------------------------------------------------------------


def test_a_body_that_fails_after_writing_leaves_the_branch_as_it_was(place):
    with_table(place, 1)

    def body(ws):
        write(numbers(ws, 2), ws.output("t"), "overwrite")
        raise ValueError("second thoughts")

    assert "second thoughts" in place.failure(body)
    assert place.rows("t") == [{"n": 1}]


def test_a_failing_check_of_what_would_be_published_leaves_the_branch_as_it_was(place):
    with_table(place, 1)

    def body(ws):
        write(numbers(ws, 2, 2), ws.output("t"), "overwrite")

    reason = place.failure(body, post=[require_table("t", unique=["n"])])
    assert "require_table('t', unique=['n']): 1 key occurs more than once" in reason
    assert place.rows("t") == [{"n": 1}]
    assert "publish" not in place.journal.steps()


@pytest.mark.parametrize("path", [PublishPath.MERGED, PublishPath.REPLACED])
def test_the_published_commit_tells_what_was_found_in_its_tables(place, path):
    with_table(place, 1)
    before = place.bench.head

    def body(ws):
        write(numbers(ws, 2, 3), ws.output("t"), "overwrite")
        if path is PublishPath.REPLACED:
            place.bench.write({"by": "an attempt that nobody counts on any more"})

    outcome = place.run(body, post=[require_table("t", rows=2, unique=["n"])])
    assert outcome.published.path is path, outcome.report.reason
    (head,) = place.bench.store.history(place.bench.repository, place.bench.branch, limit=1)
    assert head.id == outcome.published.ref
    assert head.parents == (before,)
    (found,) = json.loads(head.metadata["perago.tables"])
    assert found == {
        "phase": "post",
        "path": "t",
        "rows": 2,
        "rules": ["require_table('t', rows=2)", "require_table('t', unique=['n'])"],
    }
    assert [row["n"] for row in place.rows("t")] == [2, 3]
    place.assert_nothing_left()


def test_a_retry_after_a_failed_attempt_starts_from_the_input_again(place):
    with_table(place, 1)
    attempts = []

    def body(ws):
        write(numbers(ws, 2), ws.output("t"), "append")
        attempts.append(ws.output("t"))
        if len(attempts) == 1:
            raise ValueError("once")

    work = spark_task(body, retries=1)
    place.bench.start(work)
    assert not place.attempt(work).report.completed
    assert place.attempt(work).report.completed, place.trace
    assert [row["n"] for row in place.rows("t")] == [1, 2]
    assert attempts[0] != attempts[1], "no execution writes where another one did"


# --- on lakeFS ----------------------------------------------------------------------------------


@on_lakefs
def test_an_object_outside_of_the_prefix_fails_the_attempt(place):
    def body(ws):
        HadoopFiles(ws.spark).write(ws.output("t").replace("/songs/", "/elsewhere/"))

    reason = place.failure(body, prefix="songs")
    assert "'elsewhere/t' was written outside of the workspace's prefix 'songs'" in reason
