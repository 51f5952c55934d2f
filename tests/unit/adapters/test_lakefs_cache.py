"""The cache of downloaded objects: it copies out right bytes or nothing, whatever happens to it."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from perago.adapters.lakefs.cache import ObjectCache
from perago.adapters.local_io.parallel import Tally
from perago.model.commit import ObjectEntry
from perago.model.workspace import Download, Signature

MIB = 1 << 20
LARGE = 9 * MIB  # more than what is held in memory whole


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "cache"


@pytest.fixture
def cache(directory):
    with closing(ObjectCache(directory, limit_bytes=1024 * MIB)) as cache:
        yield cache


@pytest.fixture
def fresh(tmp_path):
    """New directories, one after the other."""
    made = []

    def make():
        made.append(tmp_path / f"workspace-{len(made)}")
        made[-1].mkdir()
        return made[-1]

    return make


def entry_of(key, data, location=None):
    where = f"local://disk/{key}" if location is None else location
    return ObjectEntry(key, len(data), hashlib.md5(data, usedforsecurity=False).hexdigest(), where)


def keep(cache, objects):
    """Put objects in, as a download would."""
    with cache.writer() as writer:
        for key, data in objects.items():
            sha256 = hashlib.sha256(data).hexdigest()
            if len(data) <= 8 * MIB:
                writer.add(entry_of(key, data), data, sha256)
            else:
                with tempfile.TemporaryFile() as file:
                    file.write(data)
                    file.flush()
                    writer.add_file(entry_of(key, data), file.fileno(), sha256)
    cache.settle()


def deliver(cache, objects, directory):
    """What the cache has of these objects, read from the files it made."""
    tally = Tally(None, objects=0, total_bytes=0)
    wanted = [Download(entry_of(key, data), directory / key) for key, data in objects.items()]
    files, missing = cache.copy_out(wanted, tally)
    assert {file.key for file in files} | {one.entry.key for one in missing} == set(objects)
    assert {path.name for path in directory.iterdir()} == {file.key for file in files}
    for file in files:
        assert file.sha256 == hashlib.sha256(objects[file.key]).hexdigest()
        assert file.signature == Signature.of((directory / file.key).stat())
    return {file.key: (directory / file.key).read_bytes() for file in files}


def some(count, size=1000):
    return {f"file-{n}": os.urandom(size) for n in range(count)}


def pack_files(directory):
    return sorted((directory / "packs").glob("*.pack"))


def bytes_kept(directory):
    return sum(path.stat().st_size for path in pack_files(directory))


# --- what it is for ----------------------------------------------------------------------------


def test_what_was_kept_is_delivered(cache, fresh):
    objects = {**some(50), "empty": b"", "two MiB": os.urandom(2 * MIB), "large": os.urandom(LARGE)}
    keep(cache, objects)
    assert deliver(cache, objects, fresh()) == objects


def test_what_one_process_kept_another_one_has(cache, directory, fresh):
    objects = some(3)
    keep(cache, objects)
    with closing(ObjectCache(directory, limit_bytes=1024 * MIB)) as other:
        assert deliver(other, objects, fresh()) == objects


def test_what_was_never_kept_is_still_wanted(cache, fresh):
    keep(cache, {"a": b"1"})
    assert deliver(cache, {"a": b"1", "b": b"2"}, fresh()) == {"a": b"1"}


def test_an_object_is_known_by_its_location_checksum_and_size_together(cache, fresh):
    keep(cache, {"a": b"1"})
    tally = Tally(None, objects=0, total_bytes=0)
    known = entry_of("a", b"1")
    for other in (
        ObjectEntry("a", 1, known.checksum, "local://disk/elsewhere"),
        ObjectEntry("a", 1, "another", known.location),
        ObjectEntry("a", 2, known.checksum, known.location),
    ):
        wanted = [Download(other, fresh() / "a")]
        assert cache.copy_out(wanted, tally) == ([], wanted)


def test_an_object_under_a_new_key_is_the_same_object(cache, fresh):
    keep(cache, {"a": b"1"})
    moved = entry_of("b", b"1", location=entry_of("a", b"1").location)
    files, missing = cache.copy_out(
        [Download(moved, fresh() / "b")], Tally(None, objects=0, total_bytes=0)
    )
    assert [file.key for file in files] == ["b"]
    assert missing == []


def test_an_object_the_store_gives_no_location_for_is_not_kept(cache, directory):
    with cache.writer() as writer:
        writer.add(entry_of("a", b"1", location=""), b"1", hashlib.sha256(b"1").hexdigest())
    assert pack_files(directory) == []


def test_many_small_downloads_share_a_few_files(cache, directory, fresh):
    objects = some(40)
    for key, data in objects.items():
        keep(cache, {key: data})
    assert len(pack_files(directory)) == 1
    assert deliver(cache, objects, fresh()) == objects


def test_nobody_else_may_read_what_is_kept(cache, directory):
    keep(cache, {"a": b"1"})
    assert directory.stat().st_mode & 0o077 == 0
    assert pack_files(directory)[0].stat().st_mode & 0o077 == 0


# --- what may happen to its files --------------------------------------------------------------


@pytest.mark.parametrize("size", [1000, LARGE])
def test_a_body_that_edits_its_file_in_place_edits_its_own_only(cache, fresh, size):
    objects = some(2, size)
    keep(cache, objects)
    first = fresh()
    deliver(cache, objects, first)
    with (first / "file-0").open("r+b") as file:
        file.write(b"edited")
    assert deliver(cache, objects, fresh()) == objects


def _flip_a_byte(path):
    with path.open("r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(bytes([first[0] ^ 1]))


@pytest.mark.parametrize("size", [1000, LARGE])
@pytest.mark.parametrize("damage", [_flip_a_byte, lambda path: os.truncate(path, 10)])
def test_damaged_bytes_are_not_delivered_and_can_be_replaced(cache, directory, fresh, size, damage):
    objects = some(1, size)
    keep(cache, objects)
    damage(pack_files(directory)[0])
    assert deliver(cache, objects, fresh()) == {}
    keep(cache, objects)
    assert deliver(cache, objects, fresh()) == objects


def test_one_damaged_object_does_not_keep_the_others_from_being_delivered(cache, directory, fresh):
    objects = some(5)
    keep(cache, objects)
    _flip_a_byte(pack_files(directory)[0])
    assert sorted(deliver(cache, objects, fresh())) == ["file-1", "file-2", "file-3", "file-4"]


def test_a_pack_that_somebody_removed_is_fetched_again(cache, directory, fresh):
    objects = some(3)
    keep(cache, objects)
    pack_files(directory)[0].unlink()
    assert deliver(cache, objects, fresh()) == {}
    keep(cache, objects)
    assert deliver(cache, objects, fresh()) == objects


def test_its_directory_may_be_removed_while_it_is_in_use(cache, directory, fresh):
    objects = some(3)
    keep(cache, objects)
    shutil.rmtree(directory)
    assert deliver(cache, objects, fresh()) == {}
    keep(cache, objects)
    assert deliver(cache, objects, fresh()) == objects


def test_its_directory_may_be_removed_while_it_is_being_filled(cache, directory, fresh):
    data = b"1"
    with cache.writer() as writer:
        writer.add(entry_of("a", data), data, hashlib.sha256(data).hexdigest())
        shutil.rmtree(directory)
        writer.add(entry_of("b", data), data, hashlib.sha256(data).hexdigest())
    assert deliver(cache, {"a": data, "b": data}, fresh()) == {}


def _overwrite(index):
    index.write_bytes(b"not a database " * 1000)


def _of_another_version(index):
    with closing(sqlite3.connect(index)) as connection:
        connection.execute("PRAGMA user_version = 99")


@pytest.mark.parametrize("damage", [_overwrite, _of_another_version])
def test_an_index_it_cannot_read_is_started_over(directory, fresh, damage):
    objects = some(3)
    with closing(ObjectCache(directory, limit_bytes=1024 * MIB)) as cache:
        keep(cache, objects)
    damage(directory / "index.db")
    with closing(ObjectCache(directory, limit_bytes=1024 * MIB)) as cache:
        assert deliver(cache, objects, fresh()) == {}
        keep(cache, objects)
        assert deliver(cache, objects, fresh()) == objects
        assert bytes_kept(directory) == 3000  # what the old index knew of is gone


def test_where_it_cannot_write_it_keeps_nothing_and_says_nothing(fresh, tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with closing(ObjectCache(tmp_path / "file" / "cache", limit_bytes=MIB)) as cache:
        keep(cache, {"a": b"1"})
        assert deliver(cache, {"a": b"1"}, fresh()) == {}


def test_a_file_that_is_in_the_way_is_neither_overwritten_nor_removed(cache, fresh):
    keep(cache, {"a": b"1"})
    target = fresh() / "a"
    target.write_text("somebody else's")
    wanted = [Download(entry_of("a", b"1"), target)]
    assert cache.copy_out(wanted, Tally(None, objects=0, total_bytes=0)) == ([], wanted)
    assert target.read_text() == "somebody else's"


# --- how much it keeps -------------------------------------------------------------------------


def test_what_was_not_used_for_the_longest_time_makes_room(directory, fresh):
    with closing(ObjectCache(directory, limit_bytes=8 * MIB)) as cache:
        files = {f"file-{n}": os.urandom(MIB) for n in range(8)}
        for key, data in files.items():
            keep(cache, {key: data})
        assert deliver(cache, {"file-0": files["file-0"]}, fresh()) != {}
        keep(cache, {"another": os.urandom(MIB)})
        kept = deliver(cache, files, fresh())
    assert "file-0" in kept
    assert "file-1" not in kept
    assert len(kept) == 7
    assert bytes_kept(directory) <= 8 * MIB


def test_it_stays_within_its_limit_on_disk(directory, fresh):
    with closing(ObjectCache(directory, limit_bytes=4 * MIB)) as cache:
        for _ in range(10):
            keep(cache, some(100, 10_000))
            assert bytes_kept(directory) <= 4 * MIB
        last = some(20, 10_000)
        keep(cache, last)
        assert deliver(cache, last, fresh()) == last


def test_an_object_that_would_push_out_everything_else_is_not_kept(directory, fresh):
    with closing(ObjectCache(directory, limit_bytes=8 * MIB)) as cache:
        small, large = some(3), {"large": os.urandom(LARGE)}
        keep(cache, small)
        keep(cache, large)
        assert deliver(cache, {**small, **large}, fresh()) == small


# --- several processes -------------------------------------------------------------------------

_FILL = """
import hashlib, os, sys
from pathlib import Path
from perago.adapters.lakefs.cache import ObjectCache
from perago.model.commit import ObjectEntry

directory, objects, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
cache = ObjectCache(directory, limit_bytes=int(sys.argv[4]))
with cache.writer() as writer:
    for n in range(objects):
        data = hashlib.sha256(str(n).encode()).digest() * (size // 32)
        md5 = hashlib.md5(data).hexdigest()
        entry = ObjectEntry(f"file-{n}", size, md5, f"local://disk/file-{n}")
        writer.add(entry, data, hashlib.sha256(data).hexdigest())
    print("filled", flush=True)
    sys.stdin.readline()
cache.close()
"""


def _content(n, size):
    return hashlib.sha256(str(n).encode()).digest() * (size // 32)


def _start_filling(directory, *, objects, size, limit=1024 * MIB, script=_FILL):
    return subprocess.Popen(
        [sys.executable, "-c", script, str(directory), str(objects), str(size), str(limit)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def filler(directory):
    """A process that has put objects into packs and not told the index of the last one yet."""
    with _start_filling(directory, objects=10, size=32_000) as process:
        assert process.stdout.readline() == "filled\n"
        yield process
        process.kill()


def test_nothing_a_killed_process_left_is_believed_or_left_lying_about(
    cache, directory, filler, fresh
):
    filler.send_signal(signal.SIGKILL)
    filler.wait()
    assert len(pack_files(directory)) == 1
    objects = {f"file-{n}": _content(n, 32_000) for n in range(10)}
    assert deliver(cache, objects, fresh()) == {}
    keep(cache, {"a": b"1"})
    assert bytes_kept(directory) == 1


def test_what_a_living_process_is_filling_is_left_to_it(cache, directory, filler, fresh):
    keep(cache, {"a": b"1"})
    assert len(pack_files(directory)) == 2
    filler.communicate("\n")
    objects = {f"file-{n}": _content(n, 32_000) for n in range(10)}
    assert deliver(cache, objects, fresh()) == objects


def test_processes_that_fill_and_evict_at_once_only_ever_find_the_right_bytes(directory, fresh):
    def fill(_):
        with _start_filling(directory, objects=200, size=32_000, limit=4 * MIB) as process:
            process.communicate("\n")
        return process.returncode

    objects = {f"file-{n}": _content(n, 32_000) for n in range(200)}
    with ThreadPoolExecutor(3) as pool, closing(ObjectCache(directory, limit_bytes=4 * MIB)) as own:
        ends = [pool.submit(fill, n) for n in range(3)]
        while not all(end.done() for end in ends):
            for key, data in deliver(own, objects, fresh()).items():
                assert data == objects[key]
        assert [end.result() for end in ends] == [0, 0, 0]
        keep(own, {"a": b"1"})
        assert deliver(own, objects, fresh())
    assert bytes_kept(directory) <= 4 * MIB


def test_a_full_disk_ends_the_keeping_and_nothing_else(directory, fresh):
    limited = (
        "import resource, signal;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({MIB}, {MIB}))\n"
    )
    with _start_filling(directory, objects=100, size=32_000, script=limited + _FILL) as process:
        assert process.communicate("\n")[0] == "filled\n"
    assert process.returncode == 0
    objects = {f"file-{n}": _content(n, 32_000) for n in range(100)}
    with closing(ObjectCache(directory, limit_bytes=1024 * MIB)) as cache:
        assert deliver(cache, objects, fresh()) == {}
    assert pack_files(directory) == []
