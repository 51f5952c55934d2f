import pytest

from perago.settings import Settings
from perago.wiring import where_spark_runs


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "on this machine (local[*])"),
        ({"SPARK_MASTER": "local[2]"}, "on this machine (local[2])"),
        ({"SPARK_MASTER": "spark://127.0.0.1:7077"}, "on spark://127.0.0.1:7077"),
        (
            {"SPARK_REMOTE": "sc://spark.example.com:15002/;token=hush;use_ssl=true"},
            "by sc://spark.example.com:15002",
        ),
        (
            {"SPARK_REMOTE": "sc://spark.example.com/;token=hush"},
            "by sc://spark.example.com:15002",
        ),
    ],
)
def test_the_demo_says_where_spark_runs_and_no_secret(monkeypatch, variables, told):
    for name in ("SPARK_MASTER", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert where_spark_runs(Settings()) == told
