"""The archive of a driver's classes: it fits or is passed over, and never costs a start."""

import subprocess

import pytest

from perago.toolchain import spark_archive
from perago.toolchain.java import spark_java
from perago.toolchain.spark_archive import archive_options, build_driver_archive, driver_archive


@pytest.fixture(scope="module")
def java():
    return spark_java(print)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    return tmp_path / "tools"


@pytest.fixture
def starts(monkeypatch):
    """Without Spark's minute: the archives that were to be built."""
    built = []

    def first_run(_java, _jars, room, _tell):
        built.append(room)
        (room / "classes.jsa").write_text("classes")

    monkeypatch.setattr(spark_archive, "_first_run", first_run)
    return built


@pytest.fixture
def jar(tmp_path):
    path = tmp_path / "s3.jar"
    path.write_bytes(b"PK")
    return path


def test_one_is_there_only_after_it_was_built_and_only_for_that_class_path(java, jar, starts):
    assert driver_archive(java, [jar]) is None
    built = build_driver_archive(java, [jar], print)
    assert driver_archive(java, [jar]) == built
    assert driver_archive(java, []) is None
    assert build_driver_archive(java, [jar], print) == built
    assert len(starts) == 1


def test_after_another_installation_it_is_built_anew_and_the_former_one_removed(
    java, jar, starts, cache
):
    former = build_driver_archive(java, [jar], print)
    jar.write_bytes(b"PK, newer")
    assert driver_archive(java, [jar]) is None
    latter = build_driver_archive(java, [jar], print)
    assert not former.exists()
    assert [path.parent for path in cache.rglob("*.jsa")] == [latter.parent]


@pytest.mark.parametrize("content", [b"", b"not an archive", None])
def test_one_that_does_not_fit_is_passed_over_without_a_word(content, java, tmp_path):
    archive = tmp_path / "classes.jsa"
    if content is not None:
        archive.write_bytes(content)
    plain, with_it = (
        subprocess.run(
            [java.java.program, *options, "-version"], capture_output=True, text=True, check=True
        )
        for options in ((), archive_options(archive).split())
    )
    assert with_it.stdout == ""
    assert _without_sharing(with_it.stderr) == _without_sharing(plain.stderr)


def _without_sharing(said):
    """The version, whose last line ends with whether any archive is in use."""
    return said.replace(", sharing", "")
