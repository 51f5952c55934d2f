"""What a driver is started with: the user's word, and sensible defaults for where it runs."""

from pathlib import Path

import pytest

from perago.adapters.spark.configuration import (
    COMMITTER,
    LakeFSLogin,
    Machine,
    as_properties,
    driver_configuration,
    is_local,
    s3a_uri,
    spark_defaults,
)

GIBIBYTE = 1024**3
SCRATCH = Path("/work room/spark-1")


def configured(master=None, chosen=(), *, cores=8, memory=32 * GIBIBYTE, drivers=1, **more):
    machine = Machine(cores, memory)
    return driver_configuration(
        master, dict(chosen), machine=machine, drivers=drivers, scratch=SCRATCH, **more
    )


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[4]", True), ("spark://h:7077", False)],
)
def test_only_threads_of_the_driver_are_local(master, local):
    assert is_local(master) is local


def test_all_of_this_machine_unless_something_else_is_named():
    assert configured()["spark.master"] == "local[*]"
    assert configured("spark://h:7077")["spark.master"] == "spark://h:7077"
    assert configured(chosen={"spark.master": "yarn"})["spark.master"] == "yarn"
    assert configured("local[2]", {"spark.master": "yarn"})["spark.master"] == "local[2]"


def test_a_driver_of_a_standalone_cluster_gives_its_executors_back():
    name = "spark.dynamicAllocation.enabled"
    assert configured("spark://h:7077")[name] == "true"
    assert configured("spark://h:7077", {name: "false"})[name] == "false"
    assert name not in configured()
    assert name not in configured("yarn")


@pytest.mark.parametrize(
    ("memory", "drivers", "given"),
    [
        (32 * GIBIBYTE, 1, "8192m"),
        (128 * GIBIBYTE, 1, "8192m"),
        (16 * GIBIBYTE, 1, "4096m"),
        (16 * GIBIBYTE, 2, "2048m"),
        (2 * GIBIBYTE, 1, "1024m"),
    ],
)
def test_a_driver_takes_its_share_of_the_memory_within_bounds(memory, drivers, given):
    assert configured(memory=memory, drivers=drivers)["spark.driver.memory"] == given


def test_several_drivers_share_the_cores_partitions_are_sized_for():
    assert configured(cores=8)["spark.sql.shuffle.partitions"] == "64"
    assert configured(cores=8, drivers=4)["spark.sql.shuffle.partitions"] == "16"
    assert configured(cores=1, drivers=4)["spark.sql.shuffle.partitions"] == "8"


def test_a_driver_of_this_machine_listens_to_it_alone():
    assert configured()["spark.driver.bindAddress"] == "127.0.0.1"
    assert "spark.driver.bindAddress" not in configured("spark://h:7077")


def test_what_is_chosen_stands():
    chosen = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "true",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.sources.commitProtocolClass": "mine",
    }
    assert configured(chosen=chosen, on_lakefs=True).items() >= chosen.items()


def test_the_committer_for_object_stores_is_for_lakefs_alone():
    assert configured(on_lakefs=True).items() >= COMMITTER.items()
    assert not configured().keys() & COMMITTER.keys()


@pytest.mark.parametrize(("keep", "said"), [(True, "true"), (False, "false")])
def test_success_files_are_written_if_they_are_kept(keep, said):
    key = "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs"
    assert configured(keep_success=keep)[key] == said


def test_spark_defaults_are_read_where_spark_looks_for_them(tmp_path):
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "# ours\n\nspark.a  1\nspark.b=two words\nspark.c\t3\n  spark.d  x=y \n"
    )
    found = {"spark.a": "1", "spark.b": "two words", "spark.c": "3"}
    assert spark_defaults({}, tmp_path).items() >= found.items()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert spark_defaults({"SPARK_CONF_DIR": str(elsewhere)}, tmp_path) == {}
    (elsewhere / "spark-defaults.conf").write_text("spark.a 2\n")
    assert spark_defaults({"SPARK_CONF_DIR": str(elsewhere)}, tmp_path) == {"spark.a": "2"}


def test_a_value_in_spark_defaults_may_have_an_equals_sign(tmp_path):
    (tmp_path / "spark-defaults.conf").write_text("spark.x -Da=b -Dc=d\n")
    found = spark_defaults({"SPARK_CONF_DIR": str(tmp_path)}, tmp_path)
    assert found == {"spark.x": "-Da=b -Dc=d"}


def test_properties_say_what_java_reads_back():
    text = as_properties({"spark.a": "x=y:#! \\\n\t", "spark.ü": "𝄞"})
    assert text == "spark.a=x\\=y\\:\\#\\!\\ \\\\\\n\\t\nspark.\\u00fc=\\ud834\\udd1e\n"


def test_a_login_is_of_one_repository_and_shows_no_secret():
    login = LakeFSLogin("http://127.0.0.1:8000", "key", "hidden")
    settings = login.bucket_settings("songs")
    assert settings["fs.s3a.bucket.songs.secret.key"] == "hidden"
    assert settings["fs.s3a.bucket.songs.connection.ssl.enabled"] == "false"
    assert all(name.startswith("fs.s3a.bucket.songs.") for name in settings)
    assert "hidden" not in repr(login)


def test_an_address_is_the_repository_the_ref_and_the_key():
    assert s3a_uri("songs", "c0ffee", "a/b") == "s3a://songs/c0ffee/a/b"
