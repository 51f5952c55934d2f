"""Paths, formats and leftovers, recognised by their names alone."""

import pytest

from perago.adapters.spark.files import (
    assert_storable,
    checked_format,
    format_of,
    input_path,
    is_below,
    is_leftover,
    is_match,
    output_path,
    without_wildcards,
)
from perago.errors import SparkPathError, UnsupportedFileError


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (["t/part-0.snappy.parquet", "t/_SUCCESS"], "parquet"),
        (["t/m=1/part-0.zstd.parquet", "t/m=2/part-1.parquet"], "parquet"),
        (["t/a.json.gz"], "json"),
        (["t/a.jsonl", "t/b.ndjson"], "json"),
        (["t/a.csv", "t/.hidden.orc"], "csv"),
        (["t/a.txt"], "text"),
        (["t/a.avro"], "avro"),
        (["t/a.orc"], "orc"),
        (["t/_delta_log/00.json", "t/part-0.parquet"], "delta"),
        (["t"], None),
        (["t/a.parquet", "t/b.csv"], None),
        (["t/_SUCCESS"], None),
        ([], None),
    ],
)
def test_a_format_is_told_from_the_names_of_the_files_or_asked_for(files, kind):
    if kind:
        assert format_of("t", files) == kind
    else:
        with pytest.raises(SparkPathError, match="'t'"):
            format_of("t", files)


def test_a_format_that_names_its_files_by_absolute_paths_is_refused_with_the_reason():
    with pytest.raises(SparkPathError, match="absolute paths"):
        checked_format("Iceberg")
    with pytest.raises(SparkPathError, match="'xlsx'"):
        checked_format("xlsx")
    assert checked_format("Parquet") == "parquet"


@pytest.mark.parametrize(
    "path",
    [
        "t/_temporary/0/task",
        "_temporary/x",
        "t/__magic_job-1/tasks/x",
        "t/.spark-staging-abc/m=1/part-0.parquet",
        "t/.part-0.parquet.crc",
        "t/._SUCCESS.crc",
    ],
)
def test_what_jobs_leave_behind_is_told_from_the_data(path):
    assert is_leftover(path, keep_success=True)


@pytest.mark.parametrize(
    "path", ["t/part-0.parquet", "temporary/x", "t/_delta_log/0.crc", "t/x_temporary/y", "a.crc"]
)
def test_data_is_no_leftover(path):
    assert not is_leftover(path, keep_success=False)


def test_success_files_stay_if_they_are_to():
    assert is_leftover("t/_SUCCESS", keep_success=False)
    assert not is_leftover("t/_SUCCESS", keep_success=True)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("t/metadata/v1.metadata.json", "Iceberg"),
        ("t/.hoodie/hoodie.properties", "Hudi"),
        ("t/_spark_metadata/0", "streaming query"),
        ("t/line\nbreak", "control character"),
    ],
)
def test_what_would_not_be_itself_under_another_name_is_refused(path, why):
    with pytest.raises(UnsupportedFileError, match=why):
        assert_storable(path)


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "/x", "a//b", "s3a://r/x", "file:/x", "a\\b", "_lakefs_actions/x.yaml"],
)
def test_a_path_can_not_leave_the_workspace(path):
    for check in (input_path, output_path):
        with pytest.raises(SparkPathError, match="can't be a part of the workspace"):
            check(path, at_root=True)


@pytest.mark.parametrize("path", ["__magic_songs", "t/_temporary", ".spark-staging-1/t"])
def test_a_table_can_not_be_written_where_nothing_is_ever_published(path):
    with pytest.raises(SparkPathError, match="scratch files"):
        output_path(path, at_root=False)
    assert input_path(path, at_root=False) == path


def test_hooks_are_an_ordinary_name_below_a_prefix():
    assert output_path("_lakefs_actions/x", at_root=False) == "_lakefs_actions/x"


def test_a_whole_workspace_can_be_read_and_not_written():
    assert input_path("", at_root=False) == ""
    with pytest.raises(SparkPathError):
        output_path("", at_root=False)


@pytest.mark.parametrize("path", ["a/*", "a?", "[ab]", "{a,b}"])
def test_a_table_is_written_to_one_place(path):
    assert input_path(path, at_root=False) == path
    with pytest.raises(SparkPathError, match="wildcard"):
        output_path(path, at_root=False)


@pytest.mark.parametrize(
    ("path", "directory"),
    [("raw/*.json", "raw"), ("*.json", ""), ("a/b{c,d}/e", "a"), ("plain/table", "plain/table")],
)
def test_what_all_matches_have_in_common(path, directory):
    assert without_wildcards(path) == directory


@pytest.mark.parametrize(
    ("path", "wanted", "matches"),
    [
        ("raw/a.json", "raw/*.json", True),
        ("raw/x/a.json", "raw/*.json", False),
        ("raw/x/a.json", "raw/*", True),
        ("t/m=1/p", "t/m={1,2}", True),
        ("t/m=3/p", "t/m={1,2}", False),
        ("a1", "a[!2-9]", True),
        ("a2", "a[!2-9]", False),
    ],
)
def test_wildcards_are_hadoops(path, wanted, matches):
    assert is_match(path, wanted) is matches


def test_a_name_that_only_begins_alike_is_not_below():
    assert is_below("t/a", "t")
    assert is_below("t", "t")
    assert not is_below("table/a", "t")
    assert is_below("anything", "")
