"""Garbage collection: deletes what nothing reaches, never what may still be needed."""

from __future__ import annotations

import os
import threading

import pytest

from perago.adapters.embedded.store import EmbeddedStore
from perago.adapters.embedded.store.blobs import Blobs
from perago.errors import StoreUnavailableError
from perago.model.workspace import Signature, Upload
from perago.testing.bench import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path, clock):
    store = EmbeddedStore(tmp_path / "store", clock=clock, durable=False)
    store.create_repository("data")
    yield store
    store.close()


def staged(store, branch, data):
    store.create_branch("data", branch, "main")
    store.put_bytes("data", branch, "a", data)
    return store.commit("data", branch, message=branch, metadata={})


def test_gc_drops_what_no_branch_reaches_and_keeps_the_rest(store, clock):
    kept, dropped = staged(store, "kept", b"keep"), staged(store, "dropped", b"drop")
    store.put_bytes("data", "main", "uncommitted", b"on main")
    store.delete_branch("data", "dropped")
    clock.advance(100)

    would = store.gc(keep_seconds=50, dry_run=True)
    assert store.get_commit("data", dropped.id) == dropped
    did = store.gc(keep_seconds=50)
    assert (did.commits, did.trees, did.ranges, did.objects, did.bytes) == (1, 1, 1, 1, 4)
    assert (would.commits, would.objects, would.dry_run) == (1, 1, True)

    assert store.read_bytes("data", kept.id, "a") == b"keep"
    assert store.read_bytes("data", "main", "uncommitted") == b"on main"
    assert store.verify().clean
    assert store.verify().unreferenced_objects == 0
    assert store.gc(keep_seconds=50).objects == 0


def test_gc_spares_what_was_made_or_left_a_moment_ago(store, clock):
    made = staged(store, "made", b"1")
    left = staged(store, "left", b"2")
    clock.advance(100)
    store.relocate("data", "left", store.head("data", "main").id, expected_head=None)
    store.delete_branch("data", "made")
    clock.advance(30)
    young = staged(store, "young", b"3")
    store.delete_branch("data", "young")

    assert store.gc(keep_seconds=50).commits == 0
    for commit, data in ((made, b"1"), (left, b"2"), (young, b"3")):
        assert store.read_bytes("data", commit.id, "a") == data
    clock.advance(60)
    assert store.gc(keep_seconds=50).commits == 3
    assert store.verify().clean


def test_gc_keeps_all_that_came_before_a_commit_it_keeps(store, clock):
    old = staged(store, "work", b"old")
    clock.advance(100)
    store.put_bytes("data", "work", "a", b"young")
    young = store.commit("data", "work", message="", metadata={})
    store.delete_branch("data", "work")
    clock.advance(10)
    assert store.gc(keep_seconds=50).commits == 0
    assert [c.id for c in store.history("data", young.id)][:2] == [young.id, old.id]


def test_gc_leaves_files_alone_that_are_not_the_stores(store):
    store.put_bytes("data", "main", "a", b"1")
    (directory,) = (store.root / "objects").iterdir()
    foreign = [store.root / "objects" / "README", directory / ".nfs0001"]
    for path in foreign:
        path.write_text("not an object")
    assert store.gc(keep_seconds=0).objects == 0
    assert all(path.exists() for path in foreign)
    assert store.verify().clean


def test_gc_waits_for_an_upload_and_keeps_what_it_brought(store, tmp_path):
    uploads = []
    for n in range(40):
        path = tmp_path / f"file-{n}"
        path.write_bytes(os.urandom(1000))
        uploads.append(Upload(f"file-{n}", path, Signature.of(path.stat())))
    under_way, go_on = threading.Event(), threading.Event()

    def pause(_):
        under_way.set()
        assert go_on.wait(60)

    uploader = threading.Thread(target=store.upload, args=("data", "main", uploads, pause))
    uploader.start()
    assert under_way.wait(60)
    reports = []
    collector = threading.Thread(target=lambda: reports.append(store.gc(keep_seconds=0)))
    collector.start()
    collector.join(0.1)
    assert collector.is_alive()
    go_on.set()
    uploader.join(60)
    collector.join(60)
    assert reports[0].objects == 0
    store.commit("data", "main", message="", metadata={})
    report = store.verify()
    assert (report.clean, report.objects) == (True, 40)


def test_gc_says_why_it_cannot_start(store):
    blobs = Blobs(store.root, durable=False)
    with (
        blobs.locked("a test", shared=True, wait_seconds=1),
        pytest.raises(StoreUnavailableError, match=r"waited 0 s.*uploads are running"),
        blobs.locked("gc", shared=False, wait_seconds=0),
    ):
        pass
