"""What the doctor says of Spark: where a driver would compute, and how a server commits."""

import json
import socket

import pytest

from perago.adapters.spark.configuration import COMMITTER
from perago.doctor.spark import committer_findings, diagnose_spark
from perago.settings import load_settings

NOBODY = "spark://127.0.0.1:9"
NAME = "spark.hadoop.fs.s3a.committer.name"
ABORTING = "spark.hadoop.fs.s3a.committer.abort.pending.uploads"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_MASTER", "SPARK_REMOTE", "PERAGO_SPARK_CONF", "PERAGO_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", "http://lakefs.example")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def defaults(tmp_path):
    """Sets a master in spark-defaults.conf."""
    file = tmp_path / "spark-defaults.conf"
    return lambda master: file.write_text(f"spark.master  {master}\n", encoding="utf-8")


@pytest.fixture
def cluster():
    """The address of a master, as far as a knock at its door can tell."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        yield f"spark://127.0.0.1:{door.getsockname()[1]}"


def told(store="lakefs"):
    return next(diagnose_spark(load_settings(store=store), None))


# --- where a driver would compute -----------------------------------------------------------------


def test_nothing_named_is_this_machine():
    found = told("embedded")
    assert found.verdict == "ok"
    assert "local[*] (the default)" in found.detail


def test_a_master_in_spark_s_own_file_is_the_one_that_is_judged(defaults, cluster):
    defaults(cluster)
    found = told()
    assert found.verdict == "ok"
    assert f"{cluster} (spark.master in spark-defaults.conf)" in found.detail


def test_one_there_that_can_not_be_reached_is_told_with_where_to_change_it(defaults):
    defaults(NOBODY)
    found = told()
    assert found.verdict == "fail"
    assert f"{NOBODY} is set by spark.master in spark-defaults.conf" in found.detail
    assert found.fix.startswith("change spark.master in spark-defaults.conf")


def test_one_there_that_can_not_see_the_embedded_store_is_told_likewise(defaults, cluster):
    defaults(cluster)
    found = told("embedded")
    assert found.verdict == "fail"
    assert "can't see the files of the embedded store" in found.detail
    assert f"{cluster} is set by spark.master in spark-defaults.conf" in found.detail


def test_variables_win_over_the_file_and_spark_master_over_all(defaults, monkeypatch):
    defaults(NOBODY)
    monkeypatch.setenv("PERAGO_SPARK_CONF", json.dumps({"spark.master": "local[3]"}))
    assert "local[3] (spark.master in PERAGO_SPARK_CONF)" in told().detail
    monkeypatch.setenv("SPARK_MASTER", "local[5]")
    assert "local[5] (SPARK_MASTER)" in told().detail


# --- how a server commits -------------------------------------------------------------------------


def test_a_server_with_every_setting_writes_by_multipart_uploads():
    (found,) = committer_findings(COMMITTER)
    assert (found.verdict, found.detail) == ("ok", "writes by multipart uploads")


@pytest.mark.parametrize("key", COMMITTER)
def test_a_setting_of_another_value_fails_with_the_right_one_to_set(key):
    (found,) = committer_findings(COMMITTER | {key: "another"})
    assert found.verdict == "fail"
    assert f"{key} is 'another' on the server" in found.detail
    assert f"`{key} {COMMITTER[key]}`" in found.fix


def test_each_setting_that_is_wrong_is_told():
    found = committer_findings(COMMITTER | {NAME: "file", ABORTING: "true"})
    assert [each.detail.split()[0] for each in found] == [NAME, ABORTING]
    assert "uploads of others" in found[1].detail
