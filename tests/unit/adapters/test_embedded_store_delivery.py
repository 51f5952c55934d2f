"""Thousands of small objects are fetched by several processes, and it doesn't show."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest

from perago.adapters.embedded.store import EmbeddedStore, parallel_copy
from perago.errors import CorruptObjectError
from perago.model.workspace import Download, Signature

FILES = {f"d{n % 7}/f{n:04}": f"content {n}".encode() for n in range(2_400)}


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "store", durable=False)
    store.create_repository("data")
    with store._intake("data", "main", list(FILES)) as intake:  # noqa: SLF001 - quicker than files
        entries = [(key, *intake.add_bytes(data)) for key, data in FILES.items()]
        store._put("data", "main", intake, entries)  # noqa: SLF001
    store.commit("data", "main", message="many", metadata={})
    yield store
    store.close()


@pytest.fixture
def wanted(store, tmp_path):
    for n in range(7):
        (tmp_path / f"files/d{n}").mkdir(parents=True)
    return [
        Download(entry, tmp_path / "files" / entry.key)
        for entry in store.list_objects("data", "main")
    ]


@pytest.fixture(autouse=True)
def two_processors(monkeypatch):
    monkeypatch.setattr(parallel_copy.os, "sched_getaffinity", lambda _pid: {0, 1})


@pytest.fixture
def couriers(monkeypatch):
    """Every courier process that is started, and what to do with it at once."""
    started = []

    def start(jobs, begin=parallel_copy._start):  # noqa: SLF001 - to get hold of the process
        started.append(begin(jobs))
        for act in started_with:
            act(started[-1])
        return started[-1]

    started_with = []
    monkeypatch.setattr(parallel_copy, "_start", start)
    return started, started_with


def assert_all_there(fetched, wanted):
    assert sorted(file.key for file in fetched.files) == sorted(FILES)
    by_key = {file.key: file for file in fetched.files}
    for item in wanted:
        assert item.path.read_bytes() == FILES[item.entry.key]
        assert by_key[item.entry.key].signature == Signature.of(item.path.stat())


def test_couriers_take_a_share_and_the_result_is_the_same(store, wanted, couriers):
    told = []
    fetched = store.download("data", "main", wanted, told.append)
    assert len(couriers[0]) == 1
    assert_all_there(fetched, wanted)
    assert (told[-1].objects, told[-1].total_objects) == (len(FILES), len(FILES))


def test_what_a_killed_courier_left_undone_is_done_by_us(store, wanted, couriers):
    couriers[1].append(lambda process: process.send_signal(signal.SIGKILL))
    assert_all_there(store.download("data", "main", wanted), wanted)


def test_a_courier_killed_half_way_leaves_no_half_written_file(store, wanted, couriers):
    def kill_soon(process):
        # Not synchronisation: wherever the kill falls, the outcome has to be the same.
        threading.Timer(0.03, process.kill).start()

    couriers[1].append(kill_soon)
    assert_all_there(store.download("data", "main", wanted), wanted)


@pytest.mark.damages_store
@pytest.mark.parametrize("place", [0, -1], ids=["in our share", "in the courier's share"])
def test_a_damaged_object_is_named_whoever_meets_it(store, wanted, place):
    item = wanted[place]
    damaged = store.root / "objects" / item.entry.checksum[:2] / item.entry.checksum[2:]
    damaged.chmod(0o644)
    damaged.write_bytes(b"x" * item.entry.size)
    with pytest.raises(CorruptObjectError, match=item.entry.key):
        store.download("data", "main", wanted)
    assert not item.path.exists()


def test_a_few_objects_are_not_worth_a_process(store, wanted, couriers):
    store.download("data", "main", wanted[:100])
    assert couriers[0] == []


def test_no_courier_outlives_an_error(store, wanted, couriers, monkeypatch):
    def fail(_job):
        raise KeyboardInterrupt

    monkeypatch.setattr(parallel_copy, "deliver", fail)
    with pytest.raises(KeyboardInterrupt):
        store.download("data", "main", wanted)
    (process,) = couriers[0]
    assert isinstance(process, subprocess.Popen)
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
