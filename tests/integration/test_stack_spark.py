"""Spark servers of ``perago stack``: a cluster and Spark Connect, beside a lakeFS, all real.

The tests share one stack and follow one another: the last one takes it down.
"""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.lakefs import store_on

from perago.adapters.spark.configuration import COMMITTER
from perago.stack import spark as spark_program
from perago.stack.processes import process_of
from perago.stack.spark_connect import login_from
from perago.stack.stack import down
from perago.toolchain.java import spark_java
from perago.toolchain.spark_jars import ensure_s3_jars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PERAGO = Path(sys.executable).with_name("perago")
LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F")
SPARK = ["spark-master", "spark-worker-1", "spark-worker-2", "spark-connect"]

ON_THE_CLUSTER = """\
import json, sys
from pyspark.sql import SparkSession
said = json.load(sys.stdin)
builder = SparkSession.builder
for name, value in said["settings"].items():
    builder = builder.config(name, value)
session = builder.getOrCreate()
hadoop = session.sparkContext._jsc.hadoopConfiguration()
for name, value in said["hadoop"].items():
    hadoop.set(name, value)
numbers = session.range(100).selectExpr("id", "id % 2 AS half")
numbers.write.partitionBy("half").parquet(said["table"])
executors = session.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print(json.dumps([executors, session.read.parquet(said["table"]).count()]))
session.stop()
"""

OVER_CONNECT = """\
import json, sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
said = json.load(sys.stdin)
session = SparkSession.builder.remote(said["remote"]).getOrCreate()
numbers = session.range(10).select(udf(lambda n: n + 1, "long")("id").alias("next"))
numbers.write.parquet(said["table"])
print(json.dumps(session.read.parquet(said["table"]).selectExpr("sum(next)").first()[0]))
session.stop()
"""


@pytest.fixture(scope="module")
def stack(lakefs_binaries, tmp_path_factory):
    """A stack with all of Spark in it, in a directory without settings."""
    if not spark_program.is_prepared():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(
            "Spark's jars or archive aren't on this machine: `make servers` gets them"
        )
    project = tmp_path_factory.mktemp("project")
    kept = {"PERAGO_TOOLS"}
    ours = ("LAKECTL_", "CONDUCTOR_", "PERAGO_", "SPARK_", "PYSPARK_")
    environment = {k: v for k, v in os.environ.items() if k in kept or not k.startswith(ours)}

    def command(*words, code=0):
        ended = subprocess.run(
            [PERAGO, "stack", *words, "--json"],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == code, ended.stderr
        return json.loads(ended.stdout)

    def script(text, given, **variables):
        """What a Python process prints, as JSON."""
        ended = subprocess.run(
            [sys.executable, "-c", text],
            cwd=project,
            env={**environment, **variables},
            input=json.dumps(given),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    directory = project / ".perago" / "stack"
    try:
        up = command("up", "lakefs", "spark", "spark-connect")
        lines = (directory / "settings.env").read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines if not line.startswith("#"))
        yield SimpleNamespace(
            directory=directory, command=command, script=script, up=up, settings=settings
        )
    finally:
        down(directory, print, delete_data=True)


@pytest.fixture(scope="module")
def repository(stack):
    login = login_from(stack.settings)
    server = SimpleNamespace(
        endpoint=login.endpoint,
        access_key_id=login.access_key_id,
        secret_access_key=login.secret_access_key,
        storage_namespace=stack.settings["PERAGO_LAKEFS_STORAGE_NAMESPACE"],
    )
    with closing(store_on(server)) as store:
        store.create_repository("songs")
    return "songs"


def named(document):
    return {one["name"]: one for one in document["servers"]}


def listening(pid):
    """The addresses that a process listens on, as the kernel writes them."""
    files = Path(f"/proc/{pid}/fd").iterdir()
    links = [str(file.readlink()) for file in files if file.is_symlink()]
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    ]
    return {
        fields[1].split(":")[0]
        for fields in lines
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in links
    }


def test_all_come_up_and_listen_on_loopback_alone(stack):
    assert stack.up["started"] == ["lakefs", *SPARK]
    servers = named(stack.up)
    assert {one["state"] for one in servers.values()} == {"running"}
    assert servers["spark-master"]["endpoint"].startswith("spark://127.0.0.1:")
    assert servers["spark-connect"]["endpoint"].startswith("sc://127.0.0.1:")
    for name in SPARK:
        heard = listening(servers[name]["pid"])
        assert heard
        assert heard <= set(LOOPBACK)


def test_what_to_set_is_said_and_not_set(stack):
    said = {one["name"]: one["use"] for one in stack.up["servers"] if one["use"]}
    servers = named(stack.up)
    assert said == {
        "spark-master": f"SPARK_MASTER={servers['spark-master']['endpoint']}",
        "spark-connect": f"SPARK_REMOTE={servers['spark-connect']['endpoint']}",
    }
    assert not [name for name in stack.settings if name.startswith("SPARK")]


def test_a_driver_has_both_workers_write_to_lakefs(stack, repository):
    java = spark_java(print)
    jars = [str(jar) for jar in ensure_s3_jars(java.java, print)]
    settings = {
        "spark.master": named(stack.up)["spark-master"]["endpoint"],
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.driver.extraClassPath": ":".join(jars),
        "spark.jars": ",".join(jars),
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        **COMMITTER,
    }
    given = {
        "settings": settings,
        "hadoop": login_from(stack.settings).bucket_settings(repository),
        "table": f"s3a://{repository}/main/halves",
    }
    executors, rows = stack.script(ON_THE_CLUSTER, given, JAVA_HOME=str(java.home))
    assert (executors, rows) == (2, 100)


def test_clients_of_connect_read_and_write_lakefs_with_no_settings_of_their_own(stack, repository):
    remote = named(stack.up)["spark-connect"]["endpoint"]
    given = {"remote": remote, "table": f"s3a://{repository}/main/next"}
    assert stack.script(OVER_CONNECT, given) == 55


def test_the_secret_of_lakefs_is_in_a_private_file_alone(stack):
    secret = login_from(stack.settings).secret_access_key.encode()
    place = stack.directory / "spark-connect"
    pid = named(stack.up)["spark-connect"]["pid"]
    public = [Path(f"/proc/{pid}/{name}") for name in ("cmdline", "environ")]
    assert not [path for path in (*public, place / "server.log") if secret in path.read_bytes()]
    assert secret in (place / "spark.properties").read_bytes()
    assert stat.S_IMODE((place / "spark.properties").stat().st_mode) == 0o600


def test_connect_has_its_classes_mapped_from_the_archive(stack):
    pid = named(stack.up)["spark-connect"]["pid"]
    assert "/classes.jsa" in Path(f"/proc/{pid}/maps").read_text()


def test_a_worker_that_died_is_replaced_and_the_others_are_left_alone(stack):
    before = named(stack.up)
    dead = process_of(before["spark-worker-1"]["pid"])
    os.kill(dead.pid, signal.SIGKILL)
    assert dead.wait(10)
    states = {one["name"]: one["state"] for one in stack.command("status", code=1)["servers"]}
    assert states["spark-worker-1"] == "stopped"
    repaired = stack.command("up", "spark")
    assert repaired["started"] == ["spark-worker-1"]
    assert named(repaired)["spark-master"]["pid"] == before["spark-master"]["pid"]
    assert named(repaired)["spark-worker-2"]["pid"] == before["spark-worker-2"]["pid"]


def test_down_stops_them_all(stack):
    pids = [one["pid"] for one in stack.command("status", *["spark", "spark-connect"])["servers"]]
    assert stack.command("down")["stopped"] == [*reversed(SPARK), "lakefs"]
    assert [process_of(pid) for pid in pids] == [None] * len(SPARK)
