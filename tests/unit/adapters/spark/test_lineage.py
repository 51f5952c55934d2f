"""The settings of Spark's own OpenLineage listener, and where its jar comes from."""

import pytest

from perago.adapters.spark.lineage import (
    PACKAGE,
    SparkLineage,
    listener_settings,
    with_listener,
)
from perago.model.attempt import Attempt, Execution, run_id, workflow_run_id

EXECUTION = Execution.begin(Attempt("run-1", "clean", 1, 0, "t", 0, "songs.clean", "songs"))
LINEAGE = SparkLineage("perago", {"type": "http", "auth.apiKey": "hunter2"})


def test_the_listener_is_told_that_the_attempt_is_its_parent_and_the_workflow_its_root():
    settings = listener_settings(LINEAGE, EXECUTION)
    assert settings["spark.openlineage.parentRunId"] == run_id(EXECUTION.id)
    assert settings["spark.openlineage.parentJobName"] == "songs.clean"
    assert settings["spark.openlineage.rootParentRunId"] == workflow_run_id("run-1")
    assert settings["spark.openlineage.rootParentJobName"] == "songs"
    assert settings["spark.openlineage.transport.type"] == "http"


def test_a_key_is_not_shown():
    assert "hunter2" not in repr(LINEAGE)


@pytest.mark.parametrize(
    ("settings", "packages"),
    [
        ({}, PACKAGE),
        ({"spark.jars.packages": "a:b:1"}, f"a:b:1,{PACKAGE}"),
        ({"spark.jars": "/opt/openlineage-spark_2.13-1.50.0.jar"}, None),
        ({"spark.driver.extraClassPath": "/opt/openlineage-spark_2.13-1.50.0.jar"}, None),
    ],
)
def test_the_jar_is_fetched_unless_one_is_named(settings, packages):
    assert with_listener(settings).get("spark.jars.packages") == packages


def test_a_session_without_the_listener_s_jar_only_says_so():
    listening = LINEAGE.listen(object(), EXECUTION)
    assert listening.problem
    listening.close()
