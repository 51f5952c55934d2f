"""Servers together, with small ones: started side by side, kept or replaced, all or none."""

import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.settings import STACK_SETTINGS
from perago.stack import stack
from perago.stack.server import (
    LOOPBACK,
    Server,
    ServerKind,
    is_healthy,
    port_for,
    read_record,
    start,
)

# Healthy once FILE is there and it was asked NUMBER times; without a file it stops with a word.
SMALL_SERVER = """\
import http.server, os, pathlib, sys
port, awaited, refusals = int(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
pathlib.Path("started").write_text(" ".join(sorted(os.environ)))
if awaited.name == "never":
    sys.exit("out of order")

class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global refusals
        refusals -= 1
        self.send_response(200 if awaited.exists() and refusals < 0 else 503)
        self.end_headers()

http.server.HTTPServer(("127.0.0.1", port), Health).serve_forever()
"""


def small(name, awaited, *, refusals=0, version="1", patience=60.0):
    """A kind whose server is healthy when the file ``awaited`` is there."""

    def server(directory, port, _on_line):
        arguments = (str(port), str(awaited), str(refusals))
        return Server(
            name=name,
            version=version,
            directory=directory,
            command=(sys.executable, "-c", SMALL_SERVER, *arguments),
            port=port,
            health_url=f"http://{LOOPBACK}:{port}/",
            files={},
            settings={f"{name.upper()}_PORT": str(port)},
            hidden_variables=("SMALL_", "TINY"),
            start_timeout_seconds=patience,
        )

    return ServerKind(name, name, version, lambda _on_line: None, lambda: True, server)


@pytest.fixture
def make_stack(tmp_path, monkeypatch):
    """A stack's directory, and a way to say which servers it has; none is left running."""
    directory = tmp_path / "stack"

    def of(*kinds):
        monkeypatch.setattr(stack, "KINDS", kinds)
        return directory

    yield of
    stack.down(directory, print)


def settings_in(directory):
    lines = (directory / STACK_SETTINGS).read_text().splitlines()
    return [line.split("=")[0] for line in lines if not line.startswith("#")]


def states(directory):
    return {one.name: one.state for one in stack.status(directory)}


def test_servers_start_side_by_side(make_stack, tmp_path):
    directory = tmp_path / "stack"
    one = small("one", directory / "two" / "started")
    two = small("two", directory / "one" / "started")
    assert stack.up(make_stack(one, two), print) == ["one", "two"]
    assert settings_in(directory) == ["ONE_PORT", "TWO_PORT"]
    assert stack.up(directory, print) == []


def test_if_one_cannot_start_none_is_left_and_no_settings(make_stack, tmp_path):
    directory = make_stack(small("one", tmp_path), small("two", Path("never")))
    with pytest.raises(RuntimeConfigError, match="two 1 stopped while it was starting") as failure:
        stack.up(directory, print)
    assert "out of order" in failure.value.message
    assert states(directory) == {"one": "stopped", "two": "stopped"}
    assert not (directory / STACK_SETTINGS).exists()


def test_one_alone_can_be_started_and_another_later_beside_it(make_stack, tmp_path):
    directory = make_stack(small("one", tmp_path), small("two", tmp_path))
    assert stack.up(directory, print, only=["one"]) == ["one"]
    assert settings_in(directory) == ["ONE_PORT"]
    assert states(directory) == {"one": "running", "two": "stopped"}
    assert stack.up(directory, print, only=["two"]) == ["two"]
    assert settings_in(directory) == ["ONE_PORT", "TWO_PORT"]
    assert stack.down(directory, print) == ["two", "one"]


def test_some_are_started_only_by_name_alone_or_as_a_group(make_stack, tmp_path, monkeypatch):
    directory = make_stack(small("one", tmp_path))
    others = [
        replace(small("head", tmp_path), group="team", variable="TEAM_HEAD"),
        replace(small("hand", tmp_path), group="team"),
    ]
    monkeypatch.setattr(stack, "ON_REQUEST", tuple(others))
    assert stack.names() == ["one", "team"]
    assert stack.up(directory, print) == ["one"]
    assert states(directory) == {"one": "running"}
    assert stack.up(directory, print, only=["team"]) == ["head", "hand"]
    assert states(directory) == {"one": "running", "head": "running", "hand": "running"}
    one, head, hand = stack.status(directory)
    assert (one.use, head.use, hand.use) == (None, f"TEAM_HEAD={head.endpoint}", None)
    assert stack.down(directory, print) == ["hand", "head", "one"]


def test_one_that_does_not_speak_http_is_well_when_it_takes_connections():
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        assert is_healthy(f"spark://{LOOPBACK}:{port}")
    assert not is_healthy(f"spark://{LOOPBACK}:{port}")


def test_one_that_still_starts_is_waited_for_and_not_replaced(make_stack, tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "_SECONDS_TO_RECOVER", 0.0)
    kind = small("one", tmp_path, refusals=20)
    directory = make_stack()
    stack.up(directory, print)  # as the command that was killed had: the directory is ours
    place = directory / "one"
    starting = start(kind.server(place, port_for(place), print))
    assert stack.up(make_stack(kind), print) == []
    assert read_record(place).process == starting.process


def test_one_that_answered_before_and_hangs_is_replaced(make_stack, tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "_SECONDS_TO_RECOVER", 0.0)
    directory = make_stack(small("one", tmp_path))
    stack.up(directory, print)
    before = read_record(directory / "one")
    os.kill(before.process.pid, signal.SIGSTOP)
    monkeypatch.setattr("perago.stack.server._GRACE_SECONDS", 0.1)
    assert stack.up(directory, print) == ["one"]
    assert not before.is_running


def test_one_of_another_version_is_replaced(make_stack, tmp_path):
    directory = make_stack(small("one", tmp_path))
    stack.up(directory, print)
    lines = []
    assert stack.up(make_stack(small("one", tmp_path, version="2")), lines.append) == ["one"]
    assert "another version" in lines[0]


def test_variables_that_would_change_a_server_are_kept_from_it(make_stack, tmp_path, monkeypatch):
    monkeypatch.setenv("SMALL_PORT", "1")
    monkeypatch.setenv("TINY", "1")
    monkeypatch.setenv("LARGE", "1")
    directory = make_stack(small("one", tmp_path))
    stack.up(directory, print)
    inherited = (directory / "one" / "started").read_text().split()
    assert "LARGE" in inherited
    assert not {"SMALL_PORT", "TINY"} & set(inherited)
