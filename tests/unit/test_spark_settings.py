"""Settings of Spark: one variable each, none of their secrets shown."""

import json

import pytest

from perago.cli.doctor import effective_settings
from perago.errors import RuntimeConfigError
from perago.settings import is_secret, load_settings, single_spark_settings


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SPARK_MASTER", "SPARK_REMOTE", "PERAGO_SPARK_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("PERAGO_SPARK_CONF_spark_sql_shuffle_partitions", "spark.sql.shuffle.partitions"),
        ("PERAGO_SPARK_CONF_spark_executorEnv_MY__NAME", "spark.executorEnv.MY_NAME"),
        ("PERAGO_SPARK_CONF_spark.ui.enabled", "spark.ui.enabled"),
    ],
)
def test_a_variable_names_a_setting(variable, setting):
    assert single_spark_settings({variable: "8", "PERAGO_HOME": "x"}) == {setting: "8"}


def test_a_variable_without_a_name_or_a_value_sets_nothing():
    assert single_spark_settings({"PERAGO_SPARK_CONF_": "8", "PERAGO_SPARK_CONF_a": ""}) == {}


def test_the_environment_wins_over_the_file(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text(
        "PERAGO_SPARK_CONF_spark_a=file\nPERAGO_SPARK_CONF_spark_b=file\nSPARK_MASTER=local[3]\n"
    )
    monkeypatch.setenv("PERAGO_SPARK_CONF_spark_b", "environment")
    settings = load_settings()
    assert settings.spark_conf == {"spark.a": "file", "spark.b": "environment"}
    assert settings.spark_master == "local[3]"


def test_settings_may_come_as_json_and_singly(monkeypatch):
    monkeypatch.setenv("PERAGO_SPARK_CONF", json.dumps({"spark.a": "1", "spark.b": "1"}))
    assert load_settings().spark_conf == {"spark.a": "1", "spark.b": "1"}
    monkeypatch.setenv("PERAGO_SPARK_CONF_spark_b", "2")
    assert load_settings().spark_conf == {"spark.a": "1", "spark.b": "2"}


def test_a_value_that_is_no_text_is_refused_without_being_told(monkeypatch):
    monkeypatch.setenv("PERAGO_SPARK_CONF", '{"spark.ssl.keyPassword": 12345678}')
    with pytest.raises(RuntimeConfigError, match="PERAGO_SPARK_CONF") as refused:
        load_settings()
    assert "12345678" not in f"{refused.value} {refused.value.fix}"


def test_what_is_no_json_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("PERAGO_SPARK_CONF", "{spark.a")
    with pytest.raises(RuntimeConfigError, match="PERAGO_SPARK_CONF") as refused:
        load_settings()
    assert "variable for each" in str(refused.value.fix)


@pytest.mark.parametrize(
    ("variable", "value"), [("SPARK_MASTER", "sc://host:15002"), ("SPARK_REMOTE", "spark://h:7077")]
)
def test_a_master_and_a_connect_server_are_not_taken_for_each_other(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(RuntimeConfigError, match=variable):
        load_settings()


@pytest.mark.parametrize(
    "value",
    [
        "sc://host;token=hush",
        "sc://host:15002;token=hush",
        "sc://user:hush@host",
        "sc://host:hush",
        "sc://host/path/;token=hush",
        "sc://",
    ],
)
def test_a_connect_server_s_address_is_refused_before_any_of_it_could_be_told(monkeypatch, value):
    monkeypatch.setenv("SPARK_REMOTE", value)
    with pytest.raises(RuntimeConfigError, match="SPARK_REMOTE") as refused:
        load_settings()
    assert "sc://HOST[:PORT][/;KEY=VALUE;...]" in str(refused.value)
    assert "hush" not in str(refused.value) + repr(refused.value)


@pytest.mark.parametrize(
    "value", ["sc://host", "sc://host:1/", "sc://[::1]:15002/;token=a;use_ssl=true"]
)
def test_a_connect_server_s_address(monkeypatch, value):
    monkeypatch.setenv("SPARK_REMOTE", value)
    assert load_settings().spark_remote.get_secret_value() == value


def test_secrets_of_spark_are_not_shown(monkeypatch):
    monkeypatch.setenv("SPARK_REMOTE", "sc://host:15002/;token=hidden")
    monkeypatch.setenv("PERAGO_SPARK_CONF_spark_hadoop_fs_s3a_secret_key", "hidden")
    monkeypatch.setenv("PERAGO_SPARK_CONF_spark_ui_enabled", "true")
    settings = load_settings()
    shown = effective_settings(settings)
    assert "hidden" not in json.dumps(shown) + repr(settings) + str(settings)
    assert "spark.ui.enabled=true" in json.dumps(shown)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("spark.ssl.keyPassword", True),
        ("spark.sql.shuffle.partitions", False),
    ],
)
def test_a_secret_is_told_by_its_name(name, secret):
    assert is_secret(name) is secret
