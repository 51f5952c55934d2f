"""What a server is started with, and what its directory remembers."""

import json
import stat

import pytest

from perago.errors import RuntimeConfigError
from perago.stack import conductor, stack
from perago.stack.lakefs import Credentials, configuration, merge
from perago.stack.server import (
    free_port,
    is_free,
    is_healthy,
    last_lines,
    read_record,
    stop,
    write_private,
)

CREDENTIALS = Credentials("KEY", "a secret", "another")


def test_lakefs_listens_on_loopback_alone_calls_nobody_and_writes_in_its_directory(tmp_path):
    config = configuration(tmp_path, 21_000, CREDENTIALS)
    assert config["listen_address"] == "127.0.0.1:21000"
    assert config["stats"] == {"enabled": False}
    assert config["security"] == {"check_latest_version": False, "audit_check_interval": "0"}
    paths = (
        config["database"]["local"]["path"],
        config["blockstore"]["local"]["path"],
        config["committed"]["local_cache"]["dir"],
    )
    assert all(path.startswith(f"{tmp_path}/data/") for path in paths)


def test_conductor_keeps_its_data_in_one_file_of_its_directory_and_calls_nobody():
    config = conductor.configuration()
    assert config["spring.datasource.url"].startswith("jdbc:sqlite:conductor.db?journal_mode=WAL")
    assert config["conductor.integrations.ai.enabled"] is False
    assert config["conductor.scheduler.enabled"] is False


def test_further_configuration_is_merged_section_by_section(tmp_path):
    base = configuration(tmp_path, 21_000, CREDENTIALS)
    merged = merge(base, {"auth": {"cache": {"ttl": "1s"}}, "actions": {"enabled": False}})
    assert merged["auth"] == {"encrypt": {"secret_key": "another"}, "cache": {"ttl": "1s"}}
    assert merged["actions"] == {"enabled": False}
    assert "cache" not in base["auth"]


def test_a_secret_is_not_in_a_repr():
    assert "a secret" not in repr(CREDENTIALS)
    assert "another" not in repr(CREDENTIALS)


def test_a_private_file_is_its_owners_and_replaces_the_old_one(tmp_path):
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("lines", "since", "shown"), [(2, 0, "b\nc"), (9, 0, "a\nb\nc"), (9, 4, "c"), (0, 0, "")]
)
def test_the_end_of_a_log_is_shown_from_a_given_place_on(tmp_path, lines, since, shown):
    (tmp_path / "log").write_text("a\nb\nc\n")
    assert last_lines(tmp_path / "log", lines, since=since) == shown


def test_a_record_that_makes_no_sense_is_no_server(tmp_path):
    for text in ("", "{}", '{"port": "x"}', "[1]"):
        (tmp_path / "state.json").write_text(text)
        assert read_record(tmp_path) is None
        assert stop(tmp_path) is None


def test_a_recorded_pid_that_is_somebody_elses_by_now_is_left_alone(tmp_path):
    record = {
        "port": 21_000,
        "health_url": "http://127.0.0.1:21000/_health",
        "version": "1.84.0",
        "process": {"pid": 1, "started": "before the last boot"},
    }
    (tmp_path / "state.json").write_text(json.dumps(record))
    found = read_record(tmp_path)
    assert found.endpoint == "http://127.0.0.1:21000"
    assert not found.is_running
    assert stop(tmp_path) is None


def test_a_port_is_free_below_those_of_outgoing_connections():
    port = free_port()
    assert is_free(port)
    assert port < 32_768
    assert free_port(port) == port
    assert not is_healthy(f"http://127.0.0.1:{port}/_health")


def test_a_directory_with_other_files_is_neither_used_nor_emptied(tmp_path, monkeypatch):
    monkeypatch.setattr(stack, "KINDS", ())
    precious = tmp_path / "lakefs" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("all of it")
    with pytest.raises(RuntimeConfigError, match=r"holds other files already: lakefs"):
        stack.up(tmp_path, print)
    assert stack.down(tmp_path, print, delete_data=True) == []
    assert precious.read_text() == "all of it"
