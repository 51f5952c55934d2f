"""What is found out about a filesystem by trying leaves no trace in it."""

from __future__ import annotations

import time

import pytest

from perago.adapters.local.engine import folds_case, wait_for_next_tick
from perago.adapters.local.faults import InjectedFaults, parse_faults
from perago.errors import RuntimeConfigError, StoreUnavailableError


def test_whether_names_fold_is_what_the_filesystem_does(tmp_path):
    (tmp_path / "Name").write_text("upper")
    (tmp_path / "name").write_text("lower")
    one_file = (tmp_path / "Name").read_text() == "lower"
    assert folds_case(tmp_path) is one_file
    assert {path.name.lower() for path in tmp_path.iterdir()} == {"name"}


def test_after_the_wait_every_write_carries_a_later_change_time(tmp_path):
    for n in range(20):
        before = tmp_path / f"before-{n}"
        before.touch()
        stamp = before.stat().st_ctime_ns
        wait_for_next_tick(tmp_path, stamp)
        before.write_text("x")
        assert before.stat().st_ctime_ns > stamp
    assert all(path.name.startswith("before-") for path in tmp_path.iterdir())


def test_a_filesystem_that_does_not_tell_time_is_refused_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("perago.adapters.local.engine._TICK_LIMIT_SECONDS", 0.01)
    tomorrow = time.time_ns() + 86_400 * 10**9
    with pytest.raises(
        RuntimeConfigError, match=r"clock of the filesystem of .* does not move"
    ) as refused:
        wait_for_next_tick(tmp_path, tomorrow)
    assert "PERAGO_WORKSPACE_ROOT" in refused.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_fault_is_met_where_it_was_put_and_nowhere_else():
    faults = parse_faults("staging.uploaded=raise, body.done=delay:0")
    faults.hit("body.done")
    faults.hit("publish.sent")
    with pytest.raises(StoreUnavailableError, match=r"staging\.uploaded"):
        faults.hit("staging.uploaded")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("publish.snet=kill", "failpoint 'publish.snet' doesn't exist"),
        ("publish.sent=explode", "action 'explode' doesn't exist"),
        ("publish.sent", "action '' doesn't exist"),
        ("body.done=delay:soon", "action 'delay' can't take 'soon'"),
        ("publish.sent=kill-once", "action 'kill-once' can't take ''"),
    ],
)
def test_a_fault_that_would_test_nothing_is_refused(spec, message):
    with pytest.raises(RuntimeConfigError, match=message):
        parse_faults(spec)


def test_no_faults_is_a_spec_too():
    assert isinstance(parse_faults(" , "), InjectedFaults)
