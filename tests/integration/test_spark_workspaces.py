"""What a Spark task may do with its workspace: the same on both kinds of store, by real Spark."""

import hashlib
import json
import os
from contextlib import closing
from pathlib import Path

import pytest
from support.spark import HadoopFiles, SparkRig, numbers, spark_task, with_table, write

from perago import require_glob, require_table
from perago.model.outcome import PublishPath
from perago.testing import InjectedFaults

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


on_embedded = pytest.mark.parametrize("spark_driver", ["embedded"], indirect=True)
on_lakefs = pytest.mark.parametrize("spark_driver", ["lakeFS"], indirect=True)
# What is about one kind alone stands at the two ends of this file: a process has one driver at a
# time, and starting another one takes long.


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
@pytest.mark.core
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


@pytest.mark.core
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
    assert "don't show one format" in place.failure(lambda ws: ws.table("as").count())
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
    outputs = ["t/*", "t/{a,b}", "t?", "", "__magic_songs", "t/_temporary"]

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


@pytest.mark.core
def test_a_body_that_fails_after_writing_leaves_the_branch_as_it_was(place):
    with_table(place, 1)

    def body(ws):
        write(numbers(ws, 2), ws.output("t"), "overwrite")
        raise ValueError("second thoughts")

    assert "second thoughts" in place.failure(body)
    assert place.rows("t") == [{"n": 1}]


@pytest.mark.core
def test_a_failing_check_of_what_would_be_published_leaves_the_branch_as_it_was(place):
    with_table(place, 1)

    def body(ws):
        write(numbers(ws, 2, 2), ws.output("t"), "overwrite")

    reason = place.failure(body, post=[require_table("t", unique=["n"])])
    assert "require_table('t', unique=['n']): 1 key occurs more than once" in reason
    assert place.rows("t") == [{"n": 1}]
    assert "publish" not in place.journal.steps()


@pytest.mark.parametrize("path", [PublishPath.MERGED, PublishPath.REPLACED])
@pytest.mark.core
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


@pytest.mark.core
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


def test_a_table_written_beside_an_output_fails_the_attempt(place):
    def body(ws):
        write(numbers(ws, 1), ws.output("clean"))
        write(numbers(ws, 2), f"{ws.output('clean')}_bad")

    reason = place.failure(body)
    assert "'clean_bad/" in reason
    assert "lies below no path that ws.output(…) returned" in reason


def test_an_output_below_a_file_is_refused_before_there_is_a_branch(place):
    place.bench.write({"report": "one file"})
    reason = place.failure(lambda ws: write(numbers(ws, 1), ws.output("report/v2")))
    assert "output 'report/v2' would lie below 'report', which is a file" in reason
    assert "stage.branch" not in place.journal.steps()


@pytest.mark.core
def test_an_input_can_not_be_written(place):
    with_table(place, 1)
    before = place.files()

    def body(ws):
        try:
            write(numbers(ws, 2), ws.input("t"), mode="overwrite")
        except Exception:  # noqa: BLE001 - Java's own, different for each kind
            return [row["n"] for row in ws.table("t").collect()]
        return "written"

    assert place.answer(body) == [1]
    assert place.files() == before


def test_a_check_refers_to_a_table_as_any_guardrail_on_it_reads_it(place):
    place.bench.write({"songs.csv": "id;title\n1;Dawn\n", "plays.json": '{"song": "1"}\n'})
    songs = require_table("songs.csv", columns=["id"], options={"header": True, "sep": ";"})
    plays = require_table("t", references={"song": "songs.csv:id"})

    def body(ws):
        ws.table("plays.json").write.parquet(ws.output("t"))

    place.answer(body, pre=[songs], post=[plays])
    reason = place.failure(
        lambda ws: ws.table("t").write.mode("append").parquet(ws.output("t")), post=[plays]
    )
    assert "there is no column 'id'" in reason


# --- on lakeFS ----------------------------------------------------------------------------------


@on_lakefs
def test_what_is_written_after_the_body_has_returned_fails_the_attempt(place):
    def body(ws):
        write(numbers(ws, 1), ws.output("t"))

    def write_late(_name):
        (branch,) = place.staging_branches
        place.bench.put({"t/late.parquet": "?"}, branch=branch)

    work, before = spark_task(body), place.bench.head
    place.bench.start(work)
    outcome = place.attempt(work, failpoints=InjectedFaults({"fence1.passed": write_late}))
    assert "'t/late.parquet' was written after the body had returned" in outcome.report.reason
    assert place.bench.head == before
    place.assert_nothing_left()


@on_lakefs
def test_what_could_not_be_written_can_be_removed(place):
    place.bench.write({"t/metadata/v1.metadata.json": "{}", "t/data.parquet": "?"})
    place.answer(lambda ws: write(numbers(ws, 1), ws.output("t"), mode="overwrite"))
    (only,) = place.objects()
    assert only.endswith(".parquet")


@on_lakefs
def test_an_object_outside_of_the_prefix_fails_the_attempt(place):
    def body(ws):
        HadoopFiles(ws.spark).write(ws.output("t").replace("/songs/", "/elsewhere/"))

    reason = place.failure(body, prefix="songs")
    assert "'elsewhere/t' was written outside of the workspace's prefix 'songs'" in reason


@on_lakefs
def test_hooks_that_a_body_slips_in_are_refused_before_the_server_could_find_them(place):
    def body(ws):
        HadoopFiles(ws.spark).write(f"{ws.output('t')[:-1]}_lakefs_actions/mine.yaml")

    reason = place.failure(body)
    assert "'_lakefs_actions/mine.yaml' was written outside of the workspace's prefix" in reason
    assert "stage.commit" not in place.journal.steps()
