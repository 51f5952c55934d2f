"""``perago doctor`` on a Spark Connect server: what is in force there, and what to set."""

import json
import os
import re
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from support.lakefs import store_on

from perago.adapters.spark.configuration import COMMITTER
from perago.stack import spark_connect
from perago.stack.test_server import start_spark_connect
from perago.toolchain.java import spark_java
from perago.toolchain.spark_jars import ensure_s3_jars

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PERAGO = Path(sys.executable).with_name("perago")
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "spark.md"
WRONG = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": "org.apache.parquet.hadoop.ParquetOutputCommitter",
    "spark.hadoop.fs.s3a.committer.name": "file",
}
"""Said outright: where Spark has the jars, it chooses some of the right ones by itself."""


def settings_of_the_how_to(login):
    """What the page tells to put into spark-defaults.conf, with this lakeFS's address and key."""
    (block,) = re.findall(r"```properties\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for line in block.splitlines() if line and not line.startswith("#")]
    listed = dict(line.split(maxsplit=1) for line in lines)
    own = {
        "spark.hadoop.fs.s3a.endpoint": login.endpoint,
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        "spark.hadoop.fs.s3a.access.key": login.access_key_id,
        "spark.hadoop.fs.s3a.secret.key": login.secret_access_key,
    }
    assert {"spark.driver.extraClassPath", *own} <= listed.keys()
    return listed | own


@pytest.fixture
def server_with(tmp_path, monkeypatch):
    """Starts a server with the jars, these settings, and none of ours for lakeFS."""
    started = []

    def start(settings, hadoop=""):
        (tmp_path / "core-site.xml").write_text(f"<configuration>{hadoop}</configuration>")
        monkeypatch.setattr(spark_connect, "COMMITTER", {})
        path = f"{tmp_path}:{ensure_s3_jars(spark_java(print).java, print)[0].parent}/*"
        given = settings | {"spark.driver.extraClassPath": path}
        started.append(start_spark_connect(tmp_path / "connect", settings=given))
        return started[-1].endpoint

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def repository(lakefs_server):
    name = f"doctor-{uuid.uuid4().hex[:12]}"
    with closing(store_on(lakefs_server)) as store:
        store.create_repository(name)
    return name


@pytest.fixture
def doctor(lakefs_server, repository, tmp_path):
    """What it says of Spark there: names, verdicts, details and fixes."""

    def look(remote):
        ours = ("LAKECTL_", "CONDUCTOR_", "PERAGO_", "SPARK_", "PYSPARK_")
        kept = {
            k: v for k, v in os.environ.items() if k == "PERAGO_TOOLS" or not k.startswith(ours)
        }
        ended = subprocess.run(
            [PERAGO, "doctor", "--on", "lakefs", "--repository", repository, "--json"],
            cwd=tmp_path,
            env={**kept, **lakefs_server.settings, "SPARK_REMOTE": remote},
            capture_output=True,
            text=True,
            check=False,
        )
        checks = json.loads(ended.stdout)["checks"]
        return [check for check in checks if check["name"].startswith("spark")]

    return look


def test_a_server_with_what_the_how_to_lists_is_found_in_order(server_with, lakefs_server, doctor):
    login = spark_connect.login_from(lakefs_server.settings)
    found = doctor(server_with(settings_of_the_how_to(login)))
    assert {check["name"]: check["verdict"] for check in found} == {
        "spark connect": "ok",
        "spark committer": "ok",
        "spark s3a": "ok",
    }, found
    assert login.secret_access_key not in json.dumps(found)


def test_each_setting_that_is_wrong_is_named_and_what_hadoop_has_elsewhere_counts(
    server_with, doctor
):
    aborting = "<name>fs.s3a.committer.abort.pending.uploads</name><value>false</value>"
    remote = server_with(WRONG, hadoop=f"<property>{aborting}</property>")
    found = [check for check in doctor(remote) if check["name"] == "spark committer"]
    assert len(found) == len(WRONG), found
    for check, (key, value) in zip(found, WRONG.items(), strict=True):
        assert check["verdict"] == "fail"
        assert f"{key} is {value!r} on the server" in check["detail"]
        assert f"`{key} {COMMITTER[key]}`" in check["fix"]
