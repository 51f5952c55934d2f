"""A jar from Maven repositories: whichever client fetches it, only the pinned one is accepted."""

import hashlib
import os

import pytest

from perago.errors import RuntimeConfigError
from perago.stack.maven import Artifact, fetch

BYTES = b"all of the server"
JAR = Artifact(
    group="org.example",
    name="server",
    version="1.0",
    classifier="boot",
    sha256=hashlib.sha256(BYTES).hexdigest(),
    size=len(BYTES),
)


@pytest.fixture(autouse=True)
def bare(tmp_path, monkeypatch):
    """A home without a Maven repository, and a machine without Maven and a package index."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.setenv(name, os.devnull if name == "PIP_CONFIG_FILE" else "")
    monkeypatch.setenv("PIP_RETRIES", "0")


@pytest.fixture
def room(tmp_path):
    (tmp_path / "room").mkdir()
    return tmp_path / "room"


def keep(tmp_path, content):
    kept = tmp_path / "home/.m2/repository/org/example/server/1.0/server-1.0-boot.jar"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(content)
    return kept


def install_maven(tmp_path, script):
    """A Maven that notes what it is asked for, and does as ``script`` says in the room."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n{script}\n')
    program.chmod(0o755)


def test_the_one_in_the_users_repository_is_taken_as_it_is(tmp_path, room):
    kept = keep(tmp_path, BYTES)
    assert fetch(JAR, room, pytest.fail) == kept
    assert list(room.iterdir()) == []


def test_another_one_there_is_passed_over_and_maven_asked(tmp_path, room):
    keep(tmp_path, b"half of it")
    install_maven(tmp_path, f"printf '{BYTES.decode()}' > server-1.0-boot.jar")
    lines = []
    brought = fetch(JAR, room, lines.append)
    assert brought == room / "server-1.0-boot.jar"
    assert brought.read_bytes() == BYTES
    asked = (tmp_path / "asked").read_text()
    assert "-Dartifact=org.example:server:1.0:jar:boot" in asked
    assert f"-Dmaven.repo.local={room}/maven" in asked
    assert "once for this machine" in lines[0]


def test_what_comes_and_is_not_it_is_refused(tmp_path, room):
    install_maven(tmp_path, "echo 'a page that asks you to sign in' > server-1.0-boot.jar")
    with pytest.raises(RuntimeConfigError, match="isn't the published one") as refused:
        fetch(JAR, room, print)
    assert JAR.sha256 in refused.value.message


@pytest.mark.process
def test_where_maven_fails_it_is_tried_without_and_the_error_says_what_is_obeyed(tmp_path, room):
    install_maven(tmp_path, "echo no route; exit 1")
    lines = []
    with pytest.raises(RuntimeConfigError, match="fetching jgo failed") as failure:
        fetch(JAR, room, lines.append)
    assert lines[1] == "Maven can't fetch server-1.0-boot.jar: trying without it"
    for obeyed in ("settings.xml", "PIP_INDEX_URL", "REQUESTS_CA_BUNDLE", "jgo.conf"):
        assert obeyed in failure.value.fix
