"""What goes wrong around Spark is said in words, with what to do about it, and soon."""

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.spark import SparkRig, engines_for, settings_for

from perago.errors import RuntimeConfigError
from perago.toolchain import java
from perago.toolchain.spark_jars import VERSION
from perago.wiring import fetch_spark_prerequisites

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets that it collects through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

NOBODY = "127.0.0.1:9"
TASKS = """
from pydantic import BaseModel
from perago import SparkWorkspace, WorkspaceSpec, pipeline, task


class Nothing(BaseModel):
    pass


@task(name="trouble.read", owner_email="d@example.com", workspace=WorkspaceSpec())
def read(ws: SparkWorkspace, params: Nothing) -> Nothing:
    return params


trouble = pipeline("trouble", [read])
"""
WITHOUT_PYSPARK = """
from importlib.machinery import PathFinder

find_spec = PathFinder.find_spec
PathFinder.find_spec = lambda name, *more: None if name == "pyspark" else find_spec(name, *more)
"""
SILENT_JAVA = """#!/bin/sh
case "$*" in
    *-version*) echo 'openjdk version "17.0.1" 2021-10-19' >&2 ;;
    *--list-modules*) echo 'jdk.incubator.vector@17.0.1' ;;
    *) exit 1 ;;
esac
"""
OTHER_SPARK = "#!/bin/sh\necho 'Error: another Spark' >&2\nexit 1\n"
OLD_JAVA = "#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n"


@pytest.fixture
def task_module(project):
    (project / "trouble_tasks.py").write_text(TASKS)
    return "trouble_tasks:trouble"


# --- what a machine lacks ------------------------------------------------------------------------


@pytest.mark.core
def test_without_pyspark_a_run_says_what_to_install(project, task_module):
    (project / "sitecustomize.py").write_text(WITHOUT_PYSPARK)
    ended = subprocess.run(
        [Path(sys.executable).with_name("perago"), "run", "--json", task_module],
        env=os.environ | {"PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
        check=False,
    )
    error = json.loads(ended.stderr.splitlines()[-1])["error"]
    assert ended.returncode != 0
    assert error["message"] == "PySpark isn't installed"
    assert "pip install 'perago-runtime[spark]'" in error["fix"]


@pytest.fixture
def bare_machine(tmp_path, monkeypatch):
    """One that has no Java and nothing fetched, and can reach nobody."""
    monkeypatch.setattr(java, "WELL_KNOWN", ())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PIP_RETRIES", "0")
    cut_off(tmp_path, monkeypatch)


def put_program(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)


def cut_off(directory, monkeypatch):
    monkeypatch.setenv("PERAGO_TOOLS", str(directory / "tools"))
    monkeypatch.setenv("HOME", str(directory / "nobody"))
    monkeypatch.setenv("PIP_INDEX_URL", f"http://{NOBODY}/simple")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, f"http://{NOBODY}")


@pytest.mark.usefixtures("bare_machine")
def test_without_a_java_a_run_says_which_one_is_needed(perago, task_module):
    answer = perago("run", "--json", task_module)
    assert answer.code != 0
    assert "Java" in answer.error["message"]
    assert "17 to 22" in answer.error["fix"]
    assert "PIP_INDEX_URL" in answer.error["fix"]


@pytest.mark.usefixtures("bare_machine")
def test_a_java_that_is_too_old_is_named_with_its_version(
    perago, task_module, tmp_path, monkeypatch
):
    put_program(tmp_path / "jdk11" / "bin" / "java", OLD_JAVA)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk11"))
    answer = perago("run", "--json", task_module)
    assert f"JAVA_HOME={tmp_path / 'jdk11'} is Java 11, not 17 to 22" in answer.error["message"]
    assert "17 to 22" in answer.error["fix"]


def test_a_jar_that_can_not_be_fetched_is_named(lakefs_server, tmp_path, monkeypatch):
    settings = settings_for(tmp_path / "home", lakefs_server)
    cut_off(tmp_path, monkeypatch)
    with pytest.raises(RuntimeConfigError) as failure:
        fetch_spark_prerequisites(settings, lambda _line: None)
    assert "hadoop-aws" in failure.value.message
    assert "spark.jars.repositories" in failure.value.fix
    assert not list((tmp_path / "tools").glob("spark-s3-jars*/*.jar")), "nothing half fetched"


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("spark.driver.memory", "lots", "lots"),
        ("spark.serializer", "no.such.One", "ClassNotFoundException: no.such.One"),
    ],
)
def test_a_setting_that_spark_can_not_start_with_is_named(tmp_path, setting, value, told):
    settings = settings_for(tmp_path / "home", conf={setting: value})
    with (
        engines_for(settings) as engines,
        pytest.raises(RuntimeConfigError, match="Spark couldn't be started") as failure,
    ):
        engines["spark"].warm_up()
    assert told in failure.value.message
    assert "\n" not in failure.value.message


def test_a_java_that_ends_without_a_word_is_told_as_that(tmp_path, monkeypatch):
    put_program(tmp_path / "jdk" / "bin" / "java", SILENT_JAVA)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    with (
        engines_for(settings_for(tmp_path / "home")) as engines,
        pytest.raises(RuntimeConfigError, match="Spark couldn't be started: ") as failure,
    ):
        engines["spark"].warm_up()
    assert "/logs/spark-" in failure.value.fix


def test_a_spark_that_the_machine_has_besides_is_not_the_one_that_is_started(tmp_path, monkeypatch):
    put_program(tmp_path / "spark-3.5" / "bin" / "spark-class", OTHER_SPARK)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark-3.5"))
    with (
        engines_for(settings_for(tmp_path / "home")) as engines,
        closing(SparkRig(tmp_path, engines)) as place,
    ):
        assert place.answer(lambda ws: ws.spark.version) == VERSION


# --- a Spark elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variable", "address"),
    [("SPARK_MASTER", f"spark://{NOBODY}"), ("SPARK_REMOTE", f"sc://{NOBODY}")],
)
def test_a_spark_elsewhere_is_refused_with_the_embedded_store(
    perago, task_module, monkeypatch, variable, address
):
    monkeypatch.setenv(variable, address)
    answer = perago("run", "--json", task_module)
    assert answer.code != 0
    assert "can't see the files of the embedded store" in answer.error["message"]
    assert "--on lakefs" in answer.error["fix"]


ELSEWHERE = {
    # By which setting, where, and within how many seconds an attempt has failed.
    "spark_master": (f"spark://{NOBODY}", 10),
    "spark_remote": (f"sc://{NOBODY}/;token=not-to-be-shown", 20),
}


@pytest.mark.parametrize("named_by", ELSEWHERE)
def test_a_spark_that_can_not_be_reached_fails_the_attempt_soon(lakefs_server, tmp_path, named_by):
    address, seconds = ELSEWHERE[named_by]
    settings = settings_for(
        tmp_path / "home", lakefs_server, **({"spark_master": None} | {named_by: address})
    )
    began = time.monotonic()
    with (
        engines_for(settings) as engines,
        closing(SparkRig(tmp_path, engines, lakefs_server)) as place,
    ):
        place.bench.write({"raw/a.txt": "a\n"})
        reason = place.failure(lambda ws: ws.table("raw").count())
    assert time.monotonic() - began < seconds
    plain = address.partition("/;")[0]
    assert f"{named_by.upper()}={plain} can't be" in reason
    assert f"unset {named_by.upper()}" in reason
    assert "not-to-be-shown" not in f"{reason} {place.journal.events}"


# --- data ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines(tmp_path_factory):
    with engines_for(settings_for(tmp_path_factory.mktemp("spark") / "home")) as engines:
        yield engines


@pytest.fixture
def place(engines, tmp_path):
    with closing(SparkRig(tmp_path, engines)) as opened:
        yield opened


def write_table(ws):
    ws.spark.sql("select 1 as n, 'one' as word").coalesce(1).write.parquet(ws.output("t"))


def with_bytes(place, change):
    """A table whose only file was changed by somebody."""
    place.answer(write_table)
    (key,) = place.objects()
    place.bench.write({key: change(place.files()[key])})
    return key


def one_line(reason):
    assert "\n" not in reason
    assert "\tat " not in reason
    return reason


def test_a_table_without_files_is_named(place):
    place.bench.write({"raw/a.jsonl": "{}"})
    reason = one_line(place.failure(lambda ws: ws.table("clean").count()))
    assert "there is no table 'clean': no file lies below it" in reason
    read_by_hand = place.failure(lambda ws: ws.spark.read.parquet(ws.input("clean")).count())
    assert "[PATH_NOT_FOUND]" in one_line(read_by_hand)
    assert "/clean" in read_by_hand


@pytest.mark.parametrize(
    "change",
    [lambda _: b"no Parquet at all", lambda data: data[: len(data) // 2], lambda data: data[:4]],
    ids=["other content", "cut off", "hardly begun"],
)
def test_a_corrupt_parquet_file_is_named(place, change):
    key = with_bytes(place, change)
    reason = one_line(place.failure(lambda ws: ws.table("t").count()))
    assert Path(key).name in reason


@pytest.mark.core
def test_a_column_that_is_no_longer_there_is_named_with_those_that_are(place):
    place.answer(write_table)
    reason = one_line(place.failure(lambda ws: ws.table("t").select("seconds").count()))
    assert "UNRESOLVED_COLUMN" in reason
    assert "`seconds`" in reason
    assert "`word`" in reason


def test_a_column_of_another_type_is_named_with_both_types(place):
    place.answer(write_table)

    def body(ws):
        return ws.spark.read.schema("n timestamp, word string").parquet(ws.input("t")).collect()

    reason = one_line(place.failure(body))
    assert "[n]" in reason or "`n`" in reason
    assert "timestamp" in reason.lower()
    assert "int" in reason.lower()
