"""Whether lineage is asked for, and what of that has to be spelled out for Spark's listener."""

import pytest

from perago.toolchain.lineage_config import http_transport, is_configured, job_namespace

URL = {"OPENLINEAGE_URL": "http://catalogue.example"}


@pytest.fixture(autouse=True)
def _nothing_is_set_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("environment", "asked"),
    [
        ({}, False),
        (URL, True),
        ({"OPENLINEAGE_URL": " "}, False),
        ({"OPENLINEAGE_NAMESPACE": "music"}, False),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "console"}, True),
        ({"OPENLINEAGE_CONFIG": "/there/is/none.yml"}, False),
        (URL | {"OPENLINEAGE_DISABLED": "True"}, False),
        (URL | {"OPENLINEAGE_DISABLED": "false"}, True),
    ],
)
def test_variables_ask_for_lineage(environment, asked):
    assert is_configured(environment) is asked


@pytest.mark.parametrize("place", ["openlineage.yml", ".openlineage/openlineage.yml", "own.yml"])
def test_a_file_asks_for_lineage(place, tmp_path):
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    file.write_text("transport: {type: console}\n")
    assert is_configured({"OPENLINEAGE_CONFIG": str(tmp_path / "own.yml")})
    assert not is_configured({"OPENLINEAGE_DISABLED": "true"})


def test_jobs_are_in_a_namespace_of_ours_unless_another_is_named():
    assert job_namespace({}) == "perago"
    assert job_namespace({"OPENLINEAGE_NAMESPACE": "music"}) == "music"


def test_the_plain_variables_are_spelled_out_for_java():
    given = URL | {"OPENLINEAGE_ENDPOINT": "in", "OPENLINEAGE_API_KEY": "hunter2"}
    assert http_transport(given) == {
        "type": "http",
        "url": "http://catalogue.example",
        "timeoutInMillis": "1000",
        "endpoint": "in",
        "auth.type": "api_key",
        "auth.apiKey": "hunter2",
    }


def test_what_java_reads_itself_is_left_to_it():
    assert http_transport({}) == {}
    assert http_transport(URL | {"OPENLINEAGE__TRANSPORT__TYPE": "console"}) == {}
