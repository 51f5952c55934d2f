"""Guardrails on data, on real Spark: exact counts, telling samples, and clear words for trouble."""

import json
import math
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from textwrap import dedent

import pytest
from pyspark.sql import functions as sf
from support.spark import bare_session

from perago import require_table
from perago.adapters.spark.error_text import short_message
from perago.adapters.spark.files import table_reader
from perago.adapters.spark.table_checks import check_table, check_tables
from perago.errors import SparkPathError
from perago.model.tables import describe

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    few = {"spark.sql.shuffle.partitions": "2"}
    with bare_session(tmp_path_factory.mktemp("spark"), **few) as session:
        yield session


@pytest.fixture
def songs(spark):
    return spark.createDataFrame(
        [
            (1, "Alba", 200.0, 10),
            (2, "Brisa", -1.0, 10),
            (2, "Cielo", None, 11),
            (3, None, 90.0, None),
            (3, "Duna", 90.0, 99),
            (3, "Eco", 90.0, 99),
        ],
        "id bigint, title string, seconds double, artist int",
    )


@pytest.fixture
def artists(spark):
    return spark.createDataFrame([(10, "x"), (11, "y"), (None, "z")], "id bigint, name string")


def reading(**frames):
    def read(source):
        return frames[source.path]

    return read


def breaches(frame, **rules):
    report = check_table(require_table("songs", **rules), reading(songs=frame))
    return describe(report)


def jobs_of(spark, group, work):
    spark.sparkContext.setJobGroup(group, group)
    work()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.core
def test_rules_that_hold_find_nothing(songs, artists):
    rules = require_table(
        "songs",
        columns={"id": "bigint", "title": "string"},
        rows=(6, 6),
        unique=["title"],
        not_null=["id"],
        where=["id between 1 and 3", "seconds is null or seconds < 300"],
        references={"id": "songs:id"},
    )
    report = check_table(rules, reading(songs=songs, artists=artists))
    assert describe(report) == []
    assert report.rows == 6
    assert len(report.results) == len(rules.rules)


@pytest.mark.core
def test_a_violation_names_the_rule_the_count_and_sample_rows(songs, artists):
    rules = require_table(
        "songs",
        rows=(7, None),
        not_null=["title"],
        where="seconds > 0",
        unique=["id"],
        references={"artist": "artists:id"},
    )
    report = check_table(rules, reading(songs=songs, artists=artists))
    rows, null, where, unique, reference = describe(report)
    assert rows == "require_table('songs', rows=7): 6 rows found, at least 7 needed"
    assert null == (
        "require_table('songs', not_null=['title']): 1 row has a null there, such as "
        "title=null, id=3, seconds=90.0, artist=null"
    )
    assert "where='seconds > 0'): 2 rows break it, such as seconds=-1.0" in where
    assert "seconds=null, id=2, title='Cielo'" in where
    assert unique == (
        "require_table('songs', unique=['id']): 2 keys occur more than once, on 5 rows, such as "
        "id=3 on 3 rows; id=2 on 2 rows"
    )
    assert reference == (
        "require_table('songs', references={'artist': 'artists:id'}): 2 rows have no partner in "
        "'artists', such as artist=99 on 2 rows"
    )
    assert [result.count for result in report.results] == [None, 1, 2, 5, 2]


@pytest.mark.core
def test_hidden_values_are_in_no_sentence_and_no_document(songs, artists):
    rules = require_table(
        "songs",
        not_null=["title"],
        where=["seconds > 0", "cast(title as int) > 0"],
        unique=["id"],
        references={"artist": "artists:id"},
        hide_values=True,
    )
    report = check_table(rules, reading(songs=songs, artists=artists))
    told = " ".join([*describe(report), json.dumps(report.document())])
    for value in ("Alba", "Duna", "90", "99", "-1", "id=2", "id=3"):
        assert value not in told
    assert "title=null, id=…, seconds=…, artist=null" in told
    assert "id=… on 3 rows" in told
    assert "CAST_INVALID_INPUT" in told


def test_columns_and_types_are_told_by_the_schema_alone(spark, songs):
    def check():
        missing, wrong, unchecked, far = breaches(
            songs,
            columns={"tilte": "string", "id": "int", "title": "string"},
            not_null=["secs"],
            references={"id": "songs:title"},
        )
        assert "columns={'tilte': 'string'}): there is no column 'tilte'; did you mean" in missing
        assert wrong == "require_table('songs', columns={'id': 'int'}): its type is bigint"
        assert "not_null=['secs']): there is no column 'secs'" in unchecked
        assert "'id' is bigint, and 'title' in 'songs' is string" in far

    assert jobs_of(spark, "schema", check) == 0


@pytest.mark.core
def test_rules_on_the_rows_of_one_table_share_one_pass(spark, songs):
    one = require_table("songs", rows=1, not_null=["id", "artist"], where="id > 0")
    other = require_table("songs", where=["id > 1", "id > 2"], fingerprint=True, hide_values=True)

    # Without a breach, because a breach costs a look at its rows.
    frame = songs.where("artist is not null and id > 2")
    found = []
    jobs = jobs_of(
        spark, "pass", lambda: found.extend(check_tables([one, other], reading(songs=frame)))
    )
    alone = jobs_of(spark, "alone", lambda: frame.agg(sf.count(sf.lit(1))).collect())
    assert [report.breaches for report in found] == [(), ()]
    assert found[0].fingerprint is None
    assert found[1].fingerprint
    assert jobs == alone


def test_a_null_condition_is_a_broken_one(songs):
    (sentence,) = breaches(songs, where="seconds < 1000")
    assert "1 row breaks it" in sentence


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("secs > 0", "[UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("id > > 0", "[PARSE_SYNTAX_ERROR] Syntax error at or near '>'."),
        ("sum(id) > 0", "[INVALID_WHERE_CONDITION]"),
        ("id", "is not a boolean"),
        ("cast(title as int) > 0", "[CAST_INVALID_INPUT]"),
        ("1 / (id - 1) > 0", "[DIVIDE_BY_ZERO]"),
    ],
)
def test_a_condition_that_cant_be_evaluated_is_told_and_the_others_still_count(songs, where, said):
    first, second = breaches(songs, where=["id > 1", where], rows=1)
    assert "where='id > 1'): 1 row breaks it" in first
    assert said in second
    assert "it can't be evaluated" in second
    assert "\n" not in second


def test_keys_of_several_columns_and_nulls(spark):
    frame = spark.createDataFrame(
        [(1, "a"), (1, "b"), (None, "a"), (None, "a"), (2, None)], "n int, s string"
    )
    other = spark.createDataFrame([(1, "a"), (7, None)], "m int, t string")
    unique, reference = describe(
        check_table(
            require_table("songs", unique=["n", "s"], references={("n", "s"): ("other", "m", "t")}),
            reading(songs=frame, other=other),
        )
    )
    assert "1 key occurs more than once, on 2 rows, such as n=null, s='a' on 2 rows" in unique
    assert "1 row has no partner in 'other', such as n=1, s='b' on 1 row" in reference


def test_fields_inside_of_columns_and_names_with_dots(spark):
    frame = spark.sql(
        "select named_struct('title', t, 'plays', array(1)) song, t `song.id`, t `a``b` "
        "from values ('x'), (null), ('x') v(t)"
    )
    assert breaches(frame, columns={"song": "struct<title:string,plays:array<int>>"}) == []
    (null,) = breaches(frame, not_null=["song.title"])
    assert "1 row has a null there, such as song.title=null" in null
    (unique,) = breaches(frame, unique=["song.title"])
    assert "song.title='x' on 2 rows" in unique
    (dotted,) = breaches(frame, not_null=["song.id", "song"])
    assert "not_null=['song.id']" in dotted
    assert len(breaches(frame, unique=["a`b"])) == 1


def test_a_table_may_refer_to_itself(spark):
    tree = spark.createDataFrame([(1, None), (2, 1), (3, 9)], "id int, parent int")
    (sentence,) = breaches(tree, references={"parent": "songs:id"})
    assert "1 row has no partner in 'songs', such as parent=9 on 1 row" in sentence


def test_an_empty_table_keeps_every_rule_but_a_least_number_of_rows(spark):
    frame = spark.createDataFrame([], "id int, t string")
    rules = {"unique": ["id"], "not_null": ["t"], "where": "id > 0"}
    assert breaches(frame, **rules, rows=0, references={"id": "songs:id"}) == []
    (sentence,) = breaches(frame, **rules, rows=1)
    assert "0 rows found, at least 1 needed" in sentence


def test_long_and_many_values_are_cut(spark):
    columns = ", ".join(f"'{'x' * 200}' as c{n}" for n in range(30))
    (sentence,) = breaches(spark.sql(f"select {columns}"), where="length(c20) < 5")
    assert "c20='xxx" in sentence
    assert len(sentence) < 600


@pytest.mark.parametrize("size", [7, 300])
def test_counts_are_those_of_a_plain_computation(spark, size):
    """The oracle works on Python values, where NaN and -0.0 are put right first."""
    dice = Random(size)
    rows = [
        (
            dice.choice([None, *range(-2, size)]),
            dice.choice([None, "", "a", "A", *map(str, range(size))]),
            dice.choice([None, 0.0, -0.0, 1.5, math.nan]),
        )
        for _ in range(size)
    ]
    others = [dice.choice([None, *range(size)]) for _ in range(size)]
    frame = spark.createDataFrame(rows, "n int, s string, f double").repartition(3)
    other = spark.createDataFrame([(each,) for each in others], "n int")
    report = check_table(
        require_table(
            "t",
            rows=0,
            not_null=["n", "f"],
            where="n >= 0 and s <> ''",
            unique=[["n"], ["s", "f"]],
            references={"n": "o:n"},
            fingerprint=True,
        ),
        reading(t=frame, o=other),
    )
    normal = [(n, s, "nan" if f is not None and f != f else f) for n, s, f in rows]  # noqa: PLR0124

    def repeated(keys):
        return sum(count for count in Counter(keys).values() if count > 1)

    expected = [
        0,
        sum(n is None for n, _, _ in normal),
        sum(f is None for _, _, f in normal),
        sum(not (n is not None and n >= 0 and s) for n, s, _ in normal),
        repeated([n for n, _, _ in normal]),
        repeated([(s, f) for _, s, f in normal]),
        sum(n is not None and n not in others for n, _, _ in normal),
    ]
    assert [result.count or 0 for result in report.results] == expected
    assert report.rows == len(rows)

    shuffled = spark.createDataFrame(
        [(s, f, n) for n, s, f in reversed(rows)], "s string, f double, n int"
    ).coalesce(1)
    again = check_table(require_table("t", fingerprint=True), reading(t=shuffled))
    assert again.fingerprint == report.fingerprint


def fingerprint(frame):
    return check_table(require_table("t", fingerprint=True), reading(t=frame)).fingerprint


EVERYTHING = """
    select id, cast(id as string) s, cast(id as decimal(30, 5)) d, id / 3 f,
      timestamp_micros(id) t, cast(cast(id as string) as binary) b, id % 2 = 0 o,
      array(id, null, id) a, map('k', id, 'l', null) m,
      named_struct('x', array(named_struct('y', id)), 'z', map(id, array(id))) n
    from range(50)
    union all select null, null, null, null, null, null, null, null, null, null
"""


def test_a_fingerprint_knows_no_order_of_rows_files_and_columns(spark, tmp_path):
    frame = spark.sql(EVERYTHING)
    frame.repartition(5).write.parquet(str(tmp_path / "five"))
    frame.orderBy(sf.desc("id")).coalesce(1).write.orc(str(tmp_path / "one"))
    five, one = spark.read.parquet(str(tmp_path / "five")), spark.read.orc(str(tmp_path / "one"))
    backwards = five.select(*reversed(five.columns))
    prints = {fingerprint(each) for each in (frame, five, one, backwards)}
    assert len(prints) == 1
    assert len(prints.pop()) == 32


def test_a_fingerprint_changes_with_every_row_name_and_type(spark):
    variants = [
        "select 1 a, 'x' b",
        "select 2 a, 'x' b",
        "select 1L a, 'x' b",
        "select 1 a, 'x' c",
        "select 1 a, 'x' b union all select 1, 'x'",
        "select 1 a, 'x' b where 1 = 0",
        "select 'x' a, cast(null as string) b",
        "select cast(null as string) a, 'x' b",
        "select cast(null as string) a, '' b",
        "select array(array(1), array(2, 3)) a",
        "select array(array(1, 2), array(3)) a",
        "select array(1, null) a",
        "select array(null, 1) a",
        "select array(1) a",
        "select cast(array() as array<int>) a",
        "select cast(null as array<int>) a",
        "select map('k', 1) a",
        "select map('k', null, 'l', 1) a",
        "select map('k', 1, 'l', null) a",
        "select named_struct('x', 1, 'y', cast(null as int)) a",
        "select named_struct('x', cast(null as int), 'y', 1) a",
        "select cast(null as struct<x:int,y:int>) a",
    ]
    prints = [fingerprint(spark.sql(variant)) for variant in variants]
    assert len(set(prints)) == len(variants)
    assert fingerprint(spark.sql("select map('l', 1, 'k', 2) a")) == fingerprint(
        spark.sql("select map('k', 2, 'l', 1) a")
    )
    assert fingerprint(spark.sql("select -0.0D a")) == fingerprint(spark.sql("select 0.0D a"))


def test_a_table_that_cant_be_hashed_says_so(spark):
    frame = spark.sql("select parse_json('1') v")
    report = check_table(require_table("t", fingerprint=True, rows=1), reading(t=frame))
    (sentence,) = describe(report)
    assert sentence.startswith("require_table('t', fingerprint=True): column 'v' holds variants")


@pytest.fixture(scope="module")
def files(spark, tmp_path_factory):
    """A directory of tables in several states, read as the engine reads them."""
    root = tmp_path_factory.mktemp("tables")

    def read(source):
        return table_reader(spark, "parquet").load(str(root / source.path))

    spark.range(100).coalesce(1).write.parquet(str(root / "good"))
    (root / "empty").mkdir()
    (good,) = (root / "good").glob("*.parquet")
    whole = good.read_bytes()
    for name, content in {
        "noise": b"this is no parquet",
        "short": whole[: len(whole) // 2],
        "holed": whole[:10] + bytes(50) + whole[60:],
    }.items():
        (root / name).mkdir()
        (root / name / "part-0.parquet").write_bytes(content)
    spark.range(3).coalesce(1).write.parquet(str(root / "changed"))
    spark.range(3).select(sf.col("id").cast("string")).coalesce(1).write.mode("append").parquet(
        str(root / "changed")
    )
    return read


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", "[PATH_NOT_FOUND] Path does not exist"),
        ("empty", "[UNABLE_TO_INFER_SCHEMA]"),
        ("noise", "noise/part-0.parquet. Could not read footer"),
        ("short", "short/part-0.parquet. Could not read footer"),
        ("holed", "Encountered error while reading file"),
        ("changed", "[CANNOT_MERGE_SCHEMAS]"),
    ],
)
def test_a_table_that_cant_be_read_is_one_finding_with_the_file_and_the_reason(files, path, said):
    report = check_table(require_table(path, where="id is not null", unique=["id"]), files)
    (sentence,) = describe(report)
    assert sentence.startswith(f"require_table('{path}'): the table '{path}' can't be read: ")
    assert said in sentence
    assert "\tat " not in sentence
    assert len(sentence) < 800


def test_of_a_table_that_cant_be_read_no_file_is_named_where_values_are_hidden(files):
    rules = require_table("noise", rows=1, hide_values=True)
    (sentence,) = describe(check_table(rules, files))
    assert sentence.startswith("require_table('noise'): the table 'noise' can't be read: ")
    assert "part-0" not in sentence
    asked = require_table("good", references={"id": "noise:id"}, hide_values=True)
    (sentence,) = describe(check_table(asked, files))
    assert "part-0" not in sentence


def test_a_reference_to_a_table_that_cant_be_read_breaks_that_rule_only(files):
    report = check_table(
        require_table("good", rows=100, references={"id": "noise:id"}, where="id >= 0"), files
    )
    (sentence,) = describe(report)
    assert "references={'id': 'noise:id'}): the table 'noise' can't be read: " in sentence


def test_a_table_without_files_is_told_in_the_engines_words():
    def read(source):
        raise SparkPathError(f"there is no table {source.path!r}")

    (sentence,) = describe(check_table(require_table("gone"), read))
    assert sentence == "require_table('gone'): there is no table 'gone'"


def test_what_isnt_the_datas_fault_is_no_violation(songs):
    def read(source):
        raise ConnectionError("the store is away")

    with pytest.raises(ConnectionError):
        check_table(require_table("songs", rows=1), read)


def test_the_essence_of_an_error_is_one_line(spark, songs):
    def boom(number):
        raise ValueError(f"no {number} here")

    with pytest.raises(Exception, match="no 1 here") as raised:
        songs.limit(1).select(sf.udf(boom, "int")("id")).collect()
    assert short_message(raised.value) == "ValueError: no 1 here"
    with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND") as raised:
        spark.read.format("nonsense").load("x")
    assert short_message(raised.value).startswith("[DATA_SOURCE_NOT_FOUND] Failed to find the data")
    with pytest.raises(Exception, match="avro") as raised:
        spark.read.format("avro").load("x")
    assert short_message(raised.value).startswith("Failed to find data source: avro.")
    assert short_message(ValueError("a body's own")) is None


def test_a_pandera_schema_is_checked_at_full_depth(songs, monkeypatch):
    import pandera.pyspark as pa
    import pyspark.sql.types as t

    class Song(pa.DataFrameModel):
        id: t.LongType() = pa.Field(ge=2)
        title: t.StringType() = pa.Field(nullable=False)
        seconds: t.StringType() = pa.Field(nullable=True)
        label: t.StringType()

        class Config:
            unique = ("id",)

    class Titled(pa.DataFrameModel):
        title: t.StringType() = pa.Field(nullable=True)

    monkeypatch.setenv("PANDERA_VALIDATION_DEPTH", "SCHEMA_ONLY")
    (sentence,) = breaches(songs, schema=Song)
    assert sentence.startswith("require_table('songs', schema=Song): ")
    for said in (
        "there is no column 'label'",
        "'title' has nulls",
        "to have type StringType(), got DoubleType()",
        "'id' fails greater_than_or_equal_to(2)",
        "columns ['id']",
    ):
        assert said in sentence
    assert "Alba" not in sentence
    assert breaches(songs, schema=Titled) == []
    assert breaches(songs, schema=Titled.to_schema()) == []


OVER_CONNECT = """
    import json, sys
    from pyspark.sql import SparkSession
    from perago import require_table
    from perago.adapters.spark.table_checks import check_tables
    from perago.model.tables import describe

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    frame = spark.sql(sys.argv[1])
    rules = [
        require_table("t", rows=1, not_null=["id"], where=["id > 3", "nope"], unique=["o"],
                      references={"id": "u:id"}, fingerprint=True),
    ]
    frames = {"t": frame, "u": spark.range(10)}
    (report,) = check_tables(rules, lambda source: frames[source.path])
    print(json.dumps([report.fingerprint, report.rows, describe(report)]))
    spark.stop()
"""


@pytest.mark.core
def test_reports_are_the_same_over_spark_connect(spark, tmp_path):
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK", "PYSPARK"))
    }
    conf = {
        "ui.enabled": "false",
        "driver.host": "127.0.0.1",
        "driver.bindAddress": "127.0.0.1",
        "local.dir": tmp_path,
        "sql.warehouse.dir": tmp_path / "w",
    }
    (tmp_path / "spark-defaults.conf").write_text(
        "\n".join(f"spark.{name} {value}" for name, value in conf.items())
    )
    done = subprocess.run(
        [sys.executable, "-c", dedent(OVER_CONNECT), EVERYTHING],
        env={**environment, "SPARK_CONF_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=280,
        cwd=tmp_path,
    )
    hashed, rows, told = json.loads(done.stdout.splitlines()[-1])
    assert hashed == fingerprint(spark.sql(EVERYTHING))
    assert rows == 51
    null, where, nope, unique, reference = told
    assert "1 row has a null there" in null
    assert "5 rows break it" in where
    assert "UNRESOLVED_COLUMN" in nope
    assert "2 keys occur more than once, on 50 rows" in unique
    assert "40 rows have no partner" in reference


def test_values_of_every_type_are_shown_as_text(spark):
    frame = spark.createDataFrame(
        [
            (
                Decimal("1.50"),
                datetime(2024, 1, 2, tzinfo=UTC),
                bytearray(b"\x01\xff"),
                [1],
                {"k": 2},
            )
        ],
        "d decimal(10,2), t timestamp, b binary, a array<int>, m map<string,int>",
    )
    (sentence,) = breaches(frame, where="false")
    for shown in ("d=1.50", "t=2024-01-0", "b=01FF", "a=[1]", "m={k -> 2}"):
        assert shown in sentence
