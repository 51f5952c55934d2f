"""One driver for many tasks: each has a session of its own, and no secret is to be seen there."""

import os
import signal
import threading
import urllib.request
from contextlib import closing, suppress
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from support.processes import PROC, bytes_of, until
from support.spark import HadoopFiles, SparkRig, engines_for, settings_for, spark_task

from perago import require_table
from perago.model.progress import Computation
from perago.settings import load_settings
from perago.testing import InjectedFaults

pytestmark = [
    pytest.mark.slow,
    # PySpark leaves the sockets that it speaks to Java through to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

DEFAULTS = """\
# What a user's own spark-defaults.conf says.
spark.master                    local[7]
spark.sql.shuffle.partitions=5
spark.sql.autoBroadcastJoinThreshold  12345
spark.ui.enabled                true
"""
FOREVER = "java_method('java.lang.Thread', 'sleep', 600000L)"


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    """What a user has in the environment and in spark-defaults.conf."""
    folder = tmp_path_factory.mktemp("conf")
    (folder / "spark-defaults.conf").write_text(DEFAULTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        patch.setenv("SPARK_MASTER", "local[2]")
        patch.setenv("PERAGO_SPARK_CONF_spark_sql_shuffle_partitions", "3")
        patch.setenv("PERAGO_SPARK_CONF_spark_ui_port", "0")
        yield


@pytest.fixture(scope="module")
def settings(variables, lakefs_server, tmp_path_factory):
    home = tmp_path_factory.mktemp("spark") / "a home 100%"
    told = load_settings(home=home)
    return settings_for(home, lakefs_server, conf=told.spark_conf, spark_master=told.spark_master)


@pytest.fixture(scope="module")
def engines(settings):
    with engines_for(settings) as engines:
        yield engines


@pytest.fixture
def place(engines, lakefs_server, tmp_path):
    with closing(SparkRig(tmp_path, engines, lakefs_server)) as opened:
        yield opened


# --- settings ------------------------------------------------------------------------------------


def test_variables_win_over_spark_defaults_which_win_over_ours(place):
    def body(ws):
        names = ("shuffle.partitions", "autoBroadcastJoinThreshold", "adaptive.enabled")
        found = [ws.spark.conf.get(f"spark.sql.{name}") for name in names]
        context = ws.spark.sparkContext
        return [context.master, *found, context.uiWebUrl is not None]

    assert place.answer(body) == ["local[2]", "3", "12345", "true", True]


# --- sessions ------------------------------------------------------------------------------------

LEFT = {
    "temporary view": (
        lambda ws: ws.spark.range(3).createTempView("seen"),
        lambda ws: ws.spark.catalog.tableExists("seen"),
    ),
    "global temporary view": (
        lambda ws: ws.spark.range(3).createGlobalTempView("seen"),
        lambda ws: [table.name for table in ws.spark.catalog.listTables("global_temp")],
    ),
    "function": (
        lambda ws: ws.spark.udf.register("made_up", lambda n: n, "int") and None,
        lambda ws: ws.spark.catalog.functionExists("made_up"),
    ),
    "SQL setting": (
        lambda ws: ws.spark.conf.set("spark.sql.shuffle.partitions", "99"),
        lambda ws: ws.spark.conf.get("spark.sql.shuffle.partitions"),
    ),
    "Hadoop setting": (
        lambda ws: HadoopFiles(ws.spark).set("fs.s3a.bucket.other.endpoint", "http://127.0.0.1:9"),
        lambda ws: HadoopFiles(ws.spark).get("fs.s3a.bucket.other.endpoint"),
    ),
    "cached table": (
        lambda ws: ws.spark.range(3).cache().count() and None,
        lambda ws: ws.spark.sparkContext._jsc.getPersistentRDDs().size(),  # noqa: SLF001
    ),
    "current database": (
        lambda ws: ws.spark.sql("create database there") and ws.spark.sql("use there") and None,
        lambda ws: ws.spark.catalog.currentDatabase(),
    ),
    "table": (
        lambda ws: ws.spark.range(3).write.saveAsTable("there"),
        lambda ws: [table.name for table in ws.spark.catalog.listTables()],
    ),
    "property of its jobs": (
        lambda ws: ws.spark.sparkContext.setLocalProperty("spark.scheduler.pool", "mine"),
        lambda ws: ws.spark.sparkContext.getLocalProperty("spark.scheduler.pool"),
    ),
}


@pytest.mark.parametrize("kind", LEFT)
@pytest.mark.core
def test_a_task_does_not_see_what_the_one_before_left(place, kind):
    leave, look = LEFT[kind]

    def leave_and_look(ws):
        leave(ws)
        return look(ws)

    before = place.answer(look)
    assert place.answer(leave_and_look) != before
    assert place.answer(look) == before


def test_a_table_may_have_the_name_of_one_that_a_task_before_has_made(place):
    def body(ws):
        ws.spark.range(3).write.saveAsTable("there")
        return ws.spark.table("there").count()

    assert [place.answer(body), place.answer(body)] == [3, 3]


def test_files_outlive_the_database_that_a_body_has_called_them(place, tmp_path):
    kept = tmp_path / "prod" / "kept.txt"
    kept.parent.mkdir()
    kept.write_text("somebody's")

    def body(ws):
        ws.spark.sql(f"create database prod location '{kept.parent}'")
        ws.spark.range(3).write.saveAsTable("prod.numbers")

    place.answer(body)
    assert kept.read_text() == "somebody's"
    assert list((kept.parent / "numbers").glob("*.parquet"))
    assert place.answer(lambda ws: [one.name for one in ws.spark.catalog.listDatabases()]) == [
        "default"
    ]


def test_whoever_asks_spark_for_the_session_gets_the_task_s_own(place):
    def body(ws):
        built = SparkSession.builder.config("spark.sql.shuffle.partitions", "42").getOrCreate()
        threads = []
        asking = threading.Thread(target=lambda: threads.append(SparkSession.builder.getOrCreate()))
        asking.start()
        asking.join()
        return [each is ws.spark for each in (built, SparkSession.active(), threads[0])]

    assert place.answer(body) == [True, True, True]
    assert place.answer(lambda ws: ws.spark.conf.get("spark.sql.shuffle.partitions")) == "3"


def test_every_attempt_s_jobs_are_a_group_of_its_own(place):
    def body(ws):
        return ws.spark.sparkContext.getLocalProperty("spark.jobGroup.id")

    first, second = place.answer(body), place.answer(body)
    assert first
    assert second
    assert first != second


# --- jobs ----------------------------------------------------------------------------------------


@pytest.mark.core
def test_a_job_that_a_body_leaves_running_is_ended_before_anything_is_staged(place):
    threads, jobs, ends = [], [], []

    def body(ws):
        def write_late():
            try:
                ws.spark.range(2).selectExpr("id", FOREVER).write.parquet(ws.output("late"))
            except Exception as error:  # noqa: BLE001 - Java's own
                ends.append(str(error))

        ws.spark.range(1).write.parquet(ws.output("done"))
        threads.append(threading.Thread(target=write_late))
        threads[0].start()
        tracker = ws.spark.sparkContext.statusTracker()
        until(tracker.getActiveJobsIds, "the job to run")
        until(lambda: place.journal.transfers, "word of it")

    def look(_name):
        jobs.append(list(SparkContext.getOrCreate().statusTracker().getActiveJobsIds()))

    work = spark_task(body)
    place.bench.start(work)
    outcome = place.attempt(work, failpoints=InjectedFaults({"post.checked": look}))
    threads[0].join(60)
    assert outcome.report.completed, place.trace
    assert jobs == [[]]
    assert "cancel" in ends[0]
    assert {key.split("/")[0] for key in place.objects()} == {"done"}
    step, progress = place.journal.transfers[0]
    assert step == "body"
    assert isinstance(progress, Computation)
    assert progress.doing.startswith("Spark job "), "its progress was told meanwhile"


@pytest.mark.parametrize("how", ["stops", "kills"])
def test_a_body_that_ends_spark_does_not_spoil_the_next_attempt(place, how):
    def body(ws):
        ws.spark.range(5).write.mode("overwrite").parquet(ws.output("t"))
        if how == "stops":
            ws.spark.stop()
        else:
            os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)  # noqa: SLF001 - no other way
            ws.spark.range(1).count()

    outcome = place.run(body, post=[require_table("t", rows=(5, 5))])
    assert outcome.report.completed == (how == "stops"), outcome.report.reason
    assert place.answer(lambda ws: ws.spark.range(5).count()) == 5
    place.assert_nothing_left()


def test_a_spark_that_a_body_has_put_in_its_own_place_is_nobody_else_s(place):
    setting, late = "spark.sql.files.ignoreCorruptFiles", []

    def body(ws):
        uri = ws.output("t")
        ws.spark.range(5).write.parquet(uri)
        ws.spark.stop()
        mine = SparkSession.builder.master("local[1]").config(setting, "true").getOrCreate()
        late.append(threading.Thread(target=lambda: _count_forever(mine)))
        late[0].start()
        until(mine.sparkContext.statusTracker().getActiveJobsIds, "its job to run")

    place.answer(body, post=[require_table("t", rows=(5, 5))])
    late[0].join(60)
    assert not late[0].is_alive(), "its jobs have ended with it"
    found = place.answer(lambda ws: [ws.spark.conf.get(setting), ws.spark.sparkContext.master])
    assert found == ["false", "local[2]"]


def _count_forever(spark):
    with suppress(Exception):  # Java's own: it is ended
        spark.range(2).selectExpr(FOREVER).collect()


# --- secrets -------------------------------------------------------------------------------------


@pytest.mark.core
def test_the_key_s_secret_is_nowhere_to_be_seen(place, settings, lakefs_server):
    shown = {}

    def read(address):
        with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - http, our own
            return answer.read().decode()

    def body(ws):
        ws.spark.range(2).write.parquet(ws.output("t"))
        frame = ws.spark.read.parquet(ws.output("t"))
        frame.count()
        context = ws.spark.sparkContext
        ui, api = context.uiWebUrl, f"{context.uiWebUrl}/api/v1/applications"
        shown["plan"] = frame._jdf.queryExecution().toString()  # noqa: SLF001 - as explain()
        shown["addresses"] = " ".join([ws.input("t"), ws.output("t")])
        shown["settings"] = str(context.getConf().getAll())
        shown["SQL settings"] = str(ws.spark.sql("set -v").collect())
        shown["environment page"] = read(f"{ui}/environment/")
        shown["environment API"] = read(f"{api}/{context.applicationId}/environment")
        shown["SQL page"] = read(f"{ui}/SQL/") + read(f"{ui}/SQL/execution/?id=0")
        shown["commands"] = " ".join(
            bytes_of(path).decode(errors="replace") for path in PROC.glob("[0-9]*/cmdline")
        )
        shown["task's settings"] = repr(vars(settings)) + repr(place.engines["spark"])

    place.answer(body, post=[require_table("t", rows=(2, 2))])
    failed = place.run(lambda ws: ws.spark.read.parquet(ws.input("nothing")).count())
    shown["failure"] = f"{failed.report} {place.trace}"
    shown["journal"] = str(place.journal.events)
    logs = [path for path in Path(settings.logs).rglob("*") if path.is_file()]
    shown["logs"] = "".join(path.read_text(errors="replace") for path in logs)
    assert lakefs_server.endpoint in str(shown["failure"]) or shown["failure"]
    assert "spark.app.name" in shown["environment page"], "the page is the one it should be"
    assert "s3a://" in shown["plan"] + shown["addresses"]
    assert len(shown["logs"]) > 100
    seen_in = [name for name, text in shown.items() if lakefs_server.secret_access_key in text]
    assert seen_in == []


def test_settings_with_secrets_are_in_a_private_file_alone(settings, place):
    place.answer(lambda ws: ws.spark.range(1).count())
    (file,) = settings.attempts.glob("spark-*/spark.properties")
    assert file.stat().st_mode & 0o077 == 0


# --- another catalogue: it needs a driver of its own, so it comes last ----------------------------


def test_a_catalogue_that_outlives_the_driver_is_left_alone(lakefs_server, tmp_path):
    metastore = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={tmp_path}/metastore;create=true"
        ),
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={tmp_path}",
    }
    hive = settings_for(tmp_path / "home", lakefs_server, conf=metastore)

    def make(ws):
        ws.spark.sql("create database prod")
        ws.spark.range(3).write.saveAsTable("prod.numbers")
        ws.spark.range(2).write.saveAsTable("dims")

    with (
        engines_for(hive) as engines,
        closing(SparkRig(tmp_path, engines, lakefs_server)) as place,
    ):
        place.answer(make)
        count = place.answer(
            lambda ws: [ws.spark.table(name).count() for name in ("prod.numbers", "dims")]
        )
    assert count == [3, 2]
