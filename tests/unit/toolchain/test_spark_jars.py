"""Spark's jars for S3: fetched by the real Ivy, here from a directory, and checked."""

import hashlib

import pytest

from perago.errors import RuntimeConfigError
from perago.toolchain import spark_jars
from perago.toolchain.java import spark_java
from perago.toolchain.spark_jars import (
    Jar,
    _pinned,
    _proxy_options,
    cached_s3_jars,
    ensure_s3_jars,
    spark_home,
)


@pytest.fixture(scope="module")
def java():
    return spark_java(print).java


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """A cache and a Maven repository of our own, and a proxy that refuses every connection."""
    monkeypatch.setenv("PERAGO_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture
def want(monkeypatch):
    def jars(*names):
        wanted = tuple(Jar("org.saws", name, "1.0", sha256_of_jar(name)) for name in names)
        monkeypatch.setattr(spark_jars, "_pinned", lambda: wanted)

    return jars


def sha256_of_jar(name):
    return hashlib.sha256(f"{name} teeth".encode()).hexdigest()


def publish(repository, *names, text="{} teeth"):
    for name in names:
        place = repository / "org" / "saws" / name / "1.0"
        place.mkdir(parents=True)
        (place / f"{name}-1.0.jar").write_text(text.format(name))
    return f"{repository.as_uri()}/"


@pytest.mark.process
def test_they_are_fetched_once_from_a_repository_that_is_named(tmp_path, want, java):
    want("long-saw", "short-saw")
    assert cached_s3_jars() is None
    lines = []
    mirror = publish(tmp_path / "mirror", "long-saw", "short-saw")
    jars = ensure_s3_jars(java, lines.append, repositories=[mirror])
    assert [jar.name for jar in jars] == ["long-saw-1.0.jar", "short-saw-1.0.jar"]
    assert [jar.read_text() for jar in jars] == ["long-saw teeth", "short-saw teeth"]
    assert "2 jars for S3" in lines[0]
    assert cached_s3_jars() == jars
    assert ensure_s3_jars(java, pytest.fail) == jars
    jars[0].write_text("blunt")
    assert cached_s3_jars() is None


@pytest.mark.process
def test_the_users_own_maven_repository_is_looked_into(tmp_path, want, java):
    want("saw")
    publish(tmp_path / "home" / ".m2" / "repository", "saw")
    (jar,) = ensure_s3_jars(java, print)
    assert jar.read_text() == "saw teeth"


@pytest.mark.process
def test_ivy_settings_of_the_users_own_stand(tmp_path, want, java):
    want("saw")
    publish(tmp_path / "mirror", "saw")
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="m"/><resolvers><ibiblio name="m" '
        f'm2compatible="true" root="{(tmp_path / "mirror").as_uri()}/"/></resolvers></ivysettings>'
    )
    (jar,) = ensure_s3_jars(java, print, ivy_settings=str(settings))
    assert jar.read_text() == "saw teeth"


@pytest.mark.process
def test_one_that_cannot_be_fetched_is_named_with_what_to_do(want, java):
    want("saw")
    with pytest.raises(RuntimeConfigError, match=r"fetching org\.saws:saw:1\.0") as failure:
        ensure_s3_jars(java, print)
    assert "org/saws/saw/1.0/saw-1.0.jar (java.net.ConnectException" in failure.value.message
    for word in ("spark.jars.ivySettings", "spark.jars.repositories", "HTTPS_PROXY", "copy"):
        assert word in failure.value.fix
    assert cached_s3_jars() is None


@pytest.mark.process
def test_one_that_is_not_the_published_one_is_never_used(tmp_path, want, java):
    want("saw")
    mirror = publish(tmp_path / "mirror", "saw", text="{} with a backdoor")
    with pytest.raises(RuntimeConfigError, match=r"org\.saws:saw:1\.0 isn't the published one"):
        ensure_s3_jars(java, print, repositories=[mirror])
    assert cached_s3_jars() is None


def test_javas_proxy_is_the_one_that_the_variables_name(monkeypatch):
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert _proxy_options() == []
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy.example:3128")
    assert _proxy_options() == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]


def test_the_list_has_each_jar_once_and_none_that_pyspark_brings():
    jars = _pinned()
    assert len({jar.name for jar in jars}) == len(jars)
    assert all(len(jar.sha256) == 64 for jar in jars)
    ours = {jar.file_name for jar in jars}
    assert not ours & {path.name for path in (spark_home() / "jars").iterdir()}
    assert {"hadoop-aws-3.4.2.jar", "spark-hadoop-cloud_2.13-4.1.2.jar"} <= ours
