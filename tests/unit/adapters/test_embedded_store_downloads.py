"""Thousands of small objects are fetched at once, each checked."""

from __future__ import annotations

import pytest

from perago.adapters.embedded.store import EmbeddedStore
from perago.errors import CorruptObjectError
from perago.model.workspace import Download, Signature

FILES = {f"d{n % 7}/f{n:04}": f"content {n}".encode() for n in range(2_400)}


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "store", durable=False)
    store.create_repository("data")
    with store._writer("data", "main", list(FILES)) as writer:  # noqa: SLF001 - quicker than files
        entries = [(key, *writer.add_bytes(data)) for key, data in FILES.items()]
        store._put("data", "main", writer, entries)  # noqa: SLF001
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


def test_every_object_arrives_with_its_signature_and_is_counted(store, wanted):
    totals = []
    fetched = store.download("data", "main", wanted, totals.append)
    assert sorted(file.key for file in fetched.files) == sorted(FILES)
    by_key = {file.key: file for file in fetched.files}
    for item in wanted:
        assert item.path.read_bytes() == FILES[item.entry.key]
        assert by_key[item.entry.key].signature == Signature.of(item.path.stat())
    assert (totals[-1].objects, totals[-1].total_objects) == (len(FILES), len(FILES))


@pytest.mark.damages_store
@pytest.mark.parametrize("place", [0, -1], ids=["first", "last"])
def test_a_damaged_object_is_named(store, wanted, place):
    item = wanted[place]
    damaged = store.root / "objects" / item.entry.checksum[:2] / item.entry.checksum[2:]
    damaged.chmod(0o644)
    damaged.write_bytes(b"x" * item.entry.size)
    with pytest.raises(CorruptObjectError, match=item.entry.key):
        store.download("data", "main", wanted)
    assert not item.path.exists()
