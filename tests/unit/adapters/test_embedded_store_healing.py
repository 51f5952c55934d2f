"""Good bytes heal the store: a damaged object is never built upon, it is replaced."""

from __future__ import annotations

import os

import pytest

from perago.adapters.embedded.store import EmbeddedStore
from perago.model.workspace import Signature, Upload
from perago.operations.import_export import import_directory

SMALL, LARGE = 100, 3 << 20


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "store", durable=False)
    store.create_repository("data")
    yield store
    store.close()


@pytest.fixture(params=[SMALL, LARGE], ids=["small", "large"])
def song(request, tmp_path):
    path = tmp_path / "songs" / "song"
    path.parent.mkdir()
    path.write_bytes(os.urandom(request.param))
    return path


def upload(store, path, *keys):
    signature = Signature.of(path.stat())
    return store.upload("data", "main", [Upload(key, path, signature) for key in keys])


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def cut_short(path):
    path.chmod(0o644)
    os.truncate(path, 2)


@pytest.mark.parametrize(
    "damage", [flip_a_byte, cut_short, os.unlink], ids=["flipped", "cut short", "gone"]
)
def test_uploading_the_good_bytes_again_replaces_the_damaged_object(store, song, damage):
    upload(store, song, "song")
    (stored,) = (store.root / "objects").glob("*/*")
    damage(stored)
    assert not store.verify().clean

    transfer = upload(store, song, "copy", "another")

    assert (transfer.objects, transfer.bytes) == (1, song.stat().st_size)
    for key in ("song", "copy", "another"):
        assert store.read_bytes("data", "main", key) == song.read_bytes()
    assert store.verify().clean
    assert stored.stat().st_mode & 0o777 == 0o444
    assert list((store.root / "tmp").iterdir()) == []


def test_bytes_put_from_memory_heal_too(store):
    store.put_bytes("data", "main", "song", b"la la la")
    (stored,) = (store.root / "objects").glob("*/*")
    flip_a_byte(stored)
    store.put_bytes("data", "main", "copy", b"la la la")
    assert store.read_bytes("data", "main", "song") == b"la la la"


def test_importing_the_good_files_heals_even_if_nothing_else_changes(store, song):
    def import_songs():
        return import_directory(store, repository="data", branch="main", directory=song.parent)

    commit = import_songs()
    (stored,) = (store.root / "objects").glob("*/*")
    flip_a_byte(stored)

    assert import_songs() is None
    assert store.head("data", "main") == commit
    assert store.verify().clean


def test_an_object_is_read_once_however_many_files_of_one_upload_have_its_bytes(
    store, song, monkeypatch
):
    upload(store, song, "song")
    (stored,) = (store.root / "objects").glob("*/*")
    opened = []
    open_ = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(path) or open_(path, *rest, **more)
    )
    upload(store, song, *(f"copy-{n}" for n in range(20)))
    assert opened.count(str(stored)) == 1
