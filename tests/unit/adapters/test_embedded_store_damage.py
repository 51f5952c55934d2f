"""Damage, foreign formats and disks that refuse: named, with a fix, and never passed on."""

from __future__ import annotations

import errno
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from perago.adapters.embedded.store import EmbeddedStore
from perago.adapters.embedded.store.refs import database_error
from perago.adapters.local_io import file_copy
from perago.errors import (
    AnswerLostError,
    CorruptObjectError,
    RuntimeConfigError,
    StoreError,
    StoreFormatError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    UnsupportedFileError,
    WorkspaceError,
)
from perago.model.workspace import Download, Signature, Upload

pytestmark = pytest.mark.damages_store


@pytest.fixture
def store(tmp_path):
    store = EmbeddedStore(tmp_path / "store", durable=False)
    store.create_repository("data")
    yield store
    store.close()


def put(store, **files):
    for key, data in files.items():
        store.put_bytes("data", "main", key, data)
    return store.commit("data", "main", message="put", metadata={})


def object_file(store, key):
    (entry,) = store.list_objects("data", "main", prefix=key)
    return store.root / "objects" / entry.checksum[:2] / entry.checksum[2:]


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def download(store, key, path):
    (entry,) = store.list_objects("data", "main", prefix=key)
    return store.download("data", "main", [Download(entry, path)])


@pytest.mark.parametrize("size", [100, 3 << 20])
def test_a_corrupted_object_is_named_and_leaves_no_file(store, tmp_path, size):
    put(store, song=os.urandom(size))
    flip_a_byte(object_file(store, "song"))
    with pytest.raises(CorruptObjectError, match=r"'song'.*\n.*perago verify"):
        download(store, "song", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CorruptObjectError, match="song"):
        store.read_bytes("data", "main", "song")


def test_a_missing_object_is_named(store, tmp_path):
    put(store, song=b"la")
    object_file(store, "song").unlink()
    with pytest.raises(CorruptObjectError, match=r"'song'.*missing"):
        download(store, "song", tmp_path / "out")
    with pytest.raises(CorruptObjectError, match=r"'song'.*missing"):
        store.open_object("data", "main", "song")


def test_objects_are_read_only_files(store):
    put(store, song=b"la")
    assert object_file(store, "song").stat().st_mode & 0o777 == 0o444


def test_verify_finds_nothing_in_a_sound_store(store):
    put(store, a=b"1", b=b"2", empty=b"")
    store.put_bytes("data", "main", "c", b"uncommitted")
    totals = []
    report = store.verify(totals.append)
    assert report.clean
    assert (report.branches, report.commits, report.objects) == (1, 2, 4)
    assert report.unreferenced_objects == 0
    assert (totals[-1].objects, totals[-1].bytes) == (4, report.bytes)


def test_verify_lists_every_damaged_part_and_goes_on(store):
    put(store, gone=b"1" * 10, bad=b"2" * 10, good=b"3" * 10)
    object_file(store, "gone").unlink()
    flip_a_byte(object_file(store, "bad"))
    report = store.verify()
    assert (report.missing, report.corrupt, report.objects) == (1, 1, 3)
    details = {finding.damage: finding.detail for finding in report.findings}
    assert "'gone'" in details["missing"]
    assert "'bad'" in details["corrupt"]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("UPDATE commits SET message = 'forged' WHERE parents != '[]'", "commit"),
        (
            "UPDATE trees SET body = '[]' WHERE length(body) > 2",
            "tree",
        ),
        ("UPDATE commits SET metadata = '{' WHERE parents != '[]'", "commit"),
        ("UPDATE ranges SET body = '[]'", "range"),
        ("DELETE FROM ranges", "range"),
        ("DELETE FROM trees WHERE length(body) > 2", "tree"),
        ("DELETE FROM commits WHERE parents != '[]'", "commit"),
        ("DELETE FROM commits WHERE parents = '[]'", "commit"),
    ],
)
def test_verify_recomputes_every_id_on_the_way_from_branch_to_bytes(store, sql, kind):
    put(store, a=b"1")
    with sqlite3.connect(store.root / "store.db") as connection:
        connection.execute(sql)
    connection.close()
    findings = store.verify().findings
    assert findings
    assert findings[0].kind == kind


def test_verify_reports_a_database_it_cannot_read_to_the_end(store):
    for n in range(300):
        store.put_bytes("data", "main", f"file-{n}", str(n).encode())
    store.commit("data", "main", message="", metadata={})
    store.close()
    with sqlite3.connect(store.root / "store.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'ranges'"
        ).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with (store.root / "store.db").open("r+b") as database:
        database.seek((page - 1) * size)
        database.write(b"\xff" * size)
    assert store.verify().corrupt


def test_a_damaged_tree_is_refused_when_it_is_read(store):
    put(store, a=b"1")
    with sqlite3.connect(store.root / "store.db") as connection:
        connection.execute("UPDATE ranges SET body = replace(body, 'a', 'b')")
    connection.close()
    with pytest.raises(CorruptObjectError, match=r"range .* damaged"):
        list(store.list_objects("data", "main"))


@pytest.mark.parametrize(
    "sql", ["UPDATE meta SET value = '999'", "DROP TABLE meta", "DELETE FROM meta"]
)
def test_a_store_of_another_format_is_refused_with_both_numbers(store, sql):
    store.close()
    with sqlite3.connect(store.root / "store.db") as connection:
        connection.execute(sql)
    connection.close()
    with pytest.raises(StoreFormatError, match=r"format (999|unknown).*format 1"):
        EmbeddedStore(store.root)


def test_a_database_that_is_none_is_refused(tmp_path):
    (tmp_path / "store.db").write_bytes(b"this is not SQLite" * 100)
    with pytest.raises(StoreFormatError, match="not a database"):
        EmbeddedStore(tmp_path)


@pytest.mark.parametrize("taken", ["", "objects", "tmp"])
def test_a_root_that_cannot_be_written_is_named(tmp_path, taken):
    blocker = tmp_path / "store" / taken if taken else tmp_path / "store"
    blocker.parent.mkdir(exist_ok=True)
    blocker.write_text("a file, where a directory is needed")
    with pytest.raises(StoreFullError, match=rf"{blocker}.*\n.*fix"):
        EmbeddedStore(tmp_path / "store")


FILL = """
import resource, sys
from pathlib import Path
from perago.adapters.embedded.store import EmbeddedStore
from perago.errors import StoreFullError
store = EmbeddedStore(Path(sys.argv[1]))
store.create_repository("data")
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    store.put_bytes("data", "main", "big", b"x" * 2_000_000)
except StoreFullError as error:
    print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put_bytes("data", "main", "big", b"x" * 2_000_000)
store.commit("data", "main", message="", metadata={})
assert store.verify().clean
assert list((Path(sys.argv[1]) / "tmp").iterdir()) == []
store.close()
"""


@pytest.mark.parametrize("limit", [1_000_000, 0])
def test_a_full_disk_is_told_and_leaves_the_store_sound(tmp_path, limit):
    done = subprocess.run(
        [sys.executable, "-c", FILL, str(tmp_path), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "can't write" in done.stdout
    assert "free space" in done.stdout


@pytest.mark.parametrize(
    ("code", "committing", "expected"),
    [
        (sqlite3.SQLITE_FULL, True, StoreFullError),
        (sqlite3.SQLITE_READONLY, False, StoreFullError),
        (sqlite3.SQLITE_IOERR, False, StoreFullError),
        (sqlite3.SQLITE_IOERR, True, AnswerLostError),
        (sqlite3.SQLITE_BUSY, False, StoreUnavailableError),
        (sqlite3.SQLITE_CORRUPT, False, StoreFormatError),
        (sqlite3.SQLITE_ERROR, False, StoreError),
    ],
)
def test_what_sqlite_refuses_is_told_as_an_error_of_ours(code, committing, expected):
    error = sqlite3.OperationalError("said SQLite")
    error.sqlite_errorcode = code
    mapped = database_error("/somewhere/store.db", error, committing=committing)
    assert type(mapped) is expected
    assert "/somewhere/store.db" in str(mapped)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EFBIG, StoreFullError),
        (errno.EROFS, StoreFullError),
        (errno.EACCES, StoreFullError),
        (errno.EIO, StoreUnavailableError),
    ],
)
def test_what_the_system_refuses_is_told_as_an_error_of_ours(number, expected):
    mapped = file_copy.write_error("/somewhere", OSError(number, os.strerror(number)))
    assert type(mapped) is expected
    assert mapped.fix


def test_a_write_waits_its_turn_for_as_long_as_it_was_told(store):
    with sqlite3.connect(store.root / "store.db", isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="another process"):
            store.delete_branch("data", "main", timeout=0.05)
        other.execute("ROLLBACK")
    other.close()
    store.delete_branch("data", "main", timeout=0.05)


@pytest.mark.parametrize("name", ["ab", "Data", "-data", "da ta", "x" * 64, "dätä", "data\n"])
def test_a_repository_has_a_name_lakefs_would_take(store, name):
    with pytest.raises(RuntimeConfigError, match="can't be the name of a repository"):
        store.create_repository(name)


@pytest.mark.parametrize("name", ["", "-b", "a/b", "a b", "ä", "b\n"])
def test_a_branch_has_a_name_lakefs_would_take(store, name):
    with pytest.raises(RuntimeConfigError, match="can't be the name of a branch"):
        store.create_branch("data", name, "main")


@pytest.mark.parametrize("key", ["", "a\0b", "half\udcff"])
def test_a_key_is_any_text_and_nothing_else(store, key):
    with pytest.raises(StoreRefusedError, match="object key"):
        store.put_bytes("data", "main", key, b"")
    with pytest.raises(StoreRefusedError, match="object key"):
        store.delete_objects("data", "main", [key])


def test_keys_that_could_not_be_files_can_be_stored(store):
    hostile = ["../x", "/x", "a//b", "a/", "\x01", "A", "a", "x" * 5000, "日本\r\n"]
    for key in hostile:
        store.put_bytes("data", "main", key, key.encode())
    commit = store.commit("data", "main", message="", metadata={})
    assert [e.key for e in store.list_objects("data", commit.id)] == sorted(hostile)
    assert all(store.read_bytes("data", commit.id, key) == key.encode() for key in hostile)


def test_a_commit_id_cannot_be_taken_over_by_a_branch_of_that_name(store):
    first = put(store, a=b"1")
    put(store, a=b"2")
    store.create_branch("data", first.id, "main")
    assert store.get_commit("data", first.id) == first


def test_an_object_that_is_not_there_is_named(store):
    put(store, a=b"1")
    store.delete_objects("data", "main", ["a"])
    for key in ("a", "ab", "b"):
        with pytest.raises(StoreError, match=f"no object '{key}'"):
            store.read_bytes("data", "main", key)


def test_a_download_never_writes_to_a_file_that_exists(store, tmp_path):
    put(store, a=b"1")
    (tmp_path / "out").write_text("mine")
    with pytest.raises(WorkspaceError, match="exists already"):
        download(store, "a", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_a_pipe_is_refused_and_not_waited_for(store, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    upload = Upload("a", tmp_path / "pipe", Signature.of((tmp_path / "pipe").stat()))
    with pytest.raises(UnsupportedFileError, match="not a regular file"):
        store.upload("data", "main", [upload])


def test_bytes_the_store_has_are_not_moved_again(store, tmp_path):
    uploads = []
    for key, data in {"a": b"12345", "b": b"12345", "c": os.urandom(2 << 20)}.items():
        path = Path(tmp_path / key)
        path.write_bytes(data)
        uploads.append(Upload(key, path, Signature.of(path.stat())))
    first = store.upload("data", "main", uploads)
    assert (first.objects, first.bytes) == (2, 5 + (2 << 20))
    again = store.upload("data", "main", uploads)
    assert (again.objects, again.bytes, again.total_objects) == (0, 0, 3)
    assert list((store.root / "tmp").iterdir()) == []
