"""``require_table``: which rules it makes, and which ones are refused when they are written."""

from pathlib import Path, PurePosixPath

import pytest
from pydantic import BaseModel

from perago import (
    SparkWorkspace,
    TaskDefinitionError,
    WorkspaceSpec,
    require_glob,
    require_table,
    task,
)
from perago.declare.guardrails import violations
from perago.declare.table_guardrails import canonical_type
from perago.model.tables import RuleResult, TableReport, describe


class Nothing(BaseModel):
    pass


def written(**arguments):
    table = require_table("clean", **arguments)
    return [table.written(rule) for rule in table.rules]


def test_every_rule_is_told_the_way_it_is_written():
    assert written(
        columns={"id": "LONG"},
        rows=(1, 9),
        not_null=["id", "title"],
        where=["seconds > 0", "plays >= 0"],
        unique=["id", "day"],
        references={"id": "catalogue/v1.2:song.id", ("y", "m"): ("calendar", "year", "month")},
    ) == [
        "require_table('clean', columns={'id': 'bigint'})",
        "require_table('clean', rows=(1, 9))",
        "require_table('clean', not_null=['id'])",
        "require_table('clean', not_null=['title'])",
        "require_table('clean', where='seconds > 0')",
        "require_table('clean', where='plays >= 0')",
        "require_table('clean', unique=['id', 'day'])",
        "require_table('clean', references={'id': 'catalogue/v1.2:song.id'})",
        "require_table('clean', references={('y', 'm'): ('calendar', 'year', 'month')})",
    ]


def test_short_forms_mean_the_long_ones():
    assert written(columns=["id"]) == ["require_table('clean', columns=['id'])"]
    assert written(rows=0) == written(rows=(0, None)) == ["require_table('clean', rows=0)"]
    assert written(where="a > 0") == written(where=("a > 0",))
    assert written(unique=[["a"], ["b", "c"]]) == written(unique=["a"]) + written(unique=["b", "c"])
    assert written(references={"a": "t:b"}) == written(references={("a",): ("t", "b")})
    assert written(not_null=["a", "a"]) == written(not_null=["a"])
    assert require_table(PurePosixPath("clean")) == require_table("clean")


def test_a_column_of_a_path_with_colons_is_what_comes_after_the_last():
    (rule,) = require_table("clean", references={"a": "x:y/t:b"}).rules
    assert (rule.path, rule.targets) == ("x:y/t", ("b",))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("Long", "bigint"),
        ("integer", "int"),
        ("decimal", "decimal(10,0)"),
        ("NUMERIC( 12 )", "decimal(12,0)"),
        ("dec(10, 2)", "decimal(10,2)"),
        ("timestamp_ltz", "timestamp"),
        ("array< map<string, long> >", "array<map<string,bigint>>"),
        ("struct<Title: string, `a b`: array<int>>", "struct<Title:string,a b:array<int>>"),
    ],
)
def test_a_type_may_be_written_in_any_way_that_spark_reads(text, canonical):
    assert canonical_type(text) == canonical


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("bigit", "no type 'bigit'"),
        ("", "a type is missing"),
        ("array<int", "'>' is missing"),
        ("int int", "'int' is left over"),
        ("decimal(a)", "'a' is not a number"),
        ("struct<a int>", "':' is missing"),
        ("struct<`a>", "it is not a type"),
    ],
)
def test_what_is_no_type_is_refused(text, problem):
    with pytest.raises(ValueError, match=problem):
        canonical_type(text)


@pytest.mark.parametrize(
    ("arguments", "message", "fix"),
    [
        ({"columns": {"id": "bigit"}}, "columns['id'] can't be 'bigit'", "did you mean 'bigint'?"),
        ({"columns": {"id": int}}, "columns['id'] can't be <class 'int'>", "such as 'bigint'"),
        ({"columns": "id"}, "columns can't be 'id'", "columns=['id']"),
        ({"rows": -1}, "rows can't be -1", "least number of rows"),
        ({"rows": True}, "rows can't be True", "least number of rows"),
        ({"rows": (5, 2)}, "at least 5 and at most 2", "rows=(2, 5)"),
        ({"rows": (None, 2)}, "rows can't be (None, 2)", "(least, most)"),
        ({"unique": "id"}, "unique can't be 'id'", "unique=['id']"),
        ({"unique": [[]]}, "unique can't be []", "one or more"),
        ({"unique": [["a", "a"]]}, "unique can't be ['a', 'a']", "different columns"),
        ({"unique": ["a", ["b"]]}, "unique can't be ['b']", "names of columns"),
        ({"not_null": [1]}, "not_null can't be 1", "names of columns"),
        ({"not_null": 1}, "not_null can't be 1", "a list of column names"),
        ({"where": ""}, "where can't be ''", "a SQL condition"),
        ({"where": ["a", 1]}, "where can't be 1", "a SQL condition"),
        ({"where": 1}, "where can't be 1", "a SQL condition"),
        ({"references": ["a"]}, "references can't be ['a']", "'catalogue:id'"),
        ({"references": {"a": "t"}}, "names no table", "{'a': 't:a'}"),
        ({"references": {"a": ("t",)}}, "names 0 column(s) for 1", "{'a': 't:a'}"),
        ({"references": {("a", "b"): "t:c"}}, "1 column(s) for 2", "{('a', 'b'): ('t', 'a', 'b')}"),
        ({"references": {"a": 1}}, "references['a'] can't be 1", "'catalogue:id'"),
        ({"references": {"a": "../t:b"}}, "'..' segment", "relative to the workspace's prefix"),
        ({"schema": dict}, "schema can't be <class 'dict'>", "pandera.pyspark"),
        ({"format": "iceberg"}, "format can't be 'iceberg'", "one of parquet, orc"),
        ({"options": ["header"]}, "options can't be ['header']", "{'header': True}"),
        ({"options": {1: "x"}}, "options can't be 1", "names of reader options"),
        ({"options": {"sep": None}}, "options['sep'] can't be None", "a string, a number"),
        ({"hide_values": 1}, "hide_values can't be 1", "True or False"),
        ({"fingerprint": "yes"}, "fingerprint can't be 'yes'", "True or False"),
    ],
)
def test_a_rule_that_can_never_work_is_refused_with_its_fix(arguments, message, fix):
    with pytest.raises(TaskDefinitionError) as refused:
        require_table("clean", **arguments)
    assert "require_table('clean')" in refused.value.message
    assert message in refused.value.message
    assert fix in refused.value.fix


@pytest.mark.parametrize("path", ["/clean", "a/../b", "clean/*.parquet", "clean[1]", "a\\b", ""])
def test_a_table_is_one_directory_or_file_below_the_prefix(path):
    with pytest.raises(TaskDefinitionError):
        require_table(path)


def test_options_are_spelled_as_spark_reads_them_and_tell_tables_apart():
    told = require_table("clean", options={"sep": ";", "header": True, "maxColumns": 20})
    assert told.source.options == (("header", "true"), ("maxColumns", "20"), ("sep", ";"))
    assert told.source != require_table("clean").source
    assert told.source == require_table("clean", rows=1, options=dict(told.source.options)).source


def test_a_spark_task_s_prefix_can_not_be_a_wildcard():
    spec = WorkspaceSpec(prefix="so[1]ngs")
    with pytest.raises(TaskDefinitionError) as refused:

        @task(name="spark.prefix", owner_email="a@example.com", workspace=spec)
        def glob(ws: SparkWorkspace, params: Nothing) -> Nothing:
            return params

    assert "task 'spark.prefix': prefix 'so[1]ngs' has a wildcard ('[')" in refused.value.message

    @task(name="local.prefix", owner_email="a@example.com", workspace=spec)
    def plain(ws: Path, params: Nothing) -> Nothing:
        return params

    assert plain.workspace.prefix == "so[1]ngs"


def test_a_task_on_local_files_cant_have_its_tables_checked():
    spec = WorkspaceSpec(post=[require_table("clean", rows=1)])
    with pytest.raises(TaskDefinitionError) as refused:

        @task(name="local.tables", owner_email="a@example.com", workspace=spec)
        def local(files: Path, params: Nothing) -> Nothing:
            return params

    assert "task 'local.tables': require_table('clean') needs Spark" in refused.value.message
    assert refused.value.fix == (
        "give the body a SparkWorkspace: def local(files: SparkWorkspace, …)"
    )


def test_a_spark_task_takes_guardrails_on_files_and_on_tables():
    spec = WorkspaceSpec(pre=[require_glob("raw/*"), require_table("raw", format="json")])

    @task(name="spark.tables", owner_email="a@example.com", workspace=spec)
    def on_spark(ws: SparkWorkspace, params: Nothing) -> Nothing:
        return params

    assert on_spark.engine == "spark"
    assert violations(spec.pre, ["raw/a"]) == []
    assert len(violations(spec.pre, [])) == 1


def test_a_table_that_repeats_the_prefix_is_a_warning_and_so_is_one_it_refers_to():
    spec = WorkspaceSpec(
        prefix="songs",
        post=[require_table("songs/clean"), require_table("a", references={"b": "songs/c:d"})],
    )
    first, second = spec.warnings()
    assert "write 'clean'" in first
    assert "write 'c'" in second


def test_hooks_are_no_table():
    with pytest.raises(TaskDefinitionError, match="never part of a workspace"):
        WorkspaceSpec(pre=[require_table("_lakefs_actions")])


def test_a_report_tells_each_broken_rule_in_one_sentence_and_documents_no_value():
    report = TableReport(
        "clean",
        (
            RuleResult("rows", "require_table('clean', rows=1)"),
            RuleResult(
                "not_null",
                "require_table('clean', not_null=['a'])",
                ("a",),
                "2 rows have a null there",
                2,
                ("a=null, b='secret'",),
            ),
        ),
        rows=7,
    )
    (sentence,) = describe(report)
    rule = "require_table('clean', not_null=['a'])"
    assert sentence == f"{rule}: 2 rows have a null there, such as a=null, b='secret'"
    assert report.document() == {
        "path": "clean",
        "rows": 7,
        "rules": ["require_table('clean', rows=1)", rule],
        "breaches": [{"rule": rule, "count": 2}],
    }


HEADED = {"header": True}


def test_a_table_that_is_referred_to_is_read_as_its_own_phase_says_else_as_the_other():
    songs, plays = require_table("songs", options=HEADED), require_table("plays")
    other = require_table("songs", format="json")
    assert WorkspaceSpec(pre=[songs], post=[plays]).sources("post")["songs"] == songs.source
    assert WorkspaceSpec(pre=[songs], post=[other]).sources("post")["songs"] == other.source
    assert WorkspaceSpec(pre=[songs], post=[other]).sources("pre")["songs"] == songs.source


def test_a_table_that_is_referred_to_and_read_in_two_ways_is_refused():
    plays = require_table("plays", references={"song": "songs:id"})
    two = [require_table("songs", options=HEADED), require_table("songs", rows=1)]
    with pytest.raises(TaskDefinitionError, match="refers to 'songs'") as refused:
        WorkspaceSpec(post=[plays, *two])
    assert refused.value.fix == "give each require_table('songs', …) the same format and options"
    with pytest.raises(TaskDefinitionError, match="refers to 'songs'"):
        WorkspaceSpec(pre=two, post=[plays])
    WorkspaceSpec(pre=two, post=[plays, require_table("songs", options=HEADED)])
    WorkspaceSpec(pre=two)
