"""Bytes from and to a real lakeFS: exactly those, under exactly that key, or a clear error."""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import uuid
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store
from support.wire import FaultyWire, cut_answer, healthy

from perago.adapters.lakefs import client
from perago.adapters.lakefs.cache import ObjectCache
from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.store import LakeFSStore
from perago.adapters.lakefs.transfers import Transfers
from perago.errors import (
    CorruptObjectError,
    StoreAccessError,
    StoreFullError,
    StoreRefusedError,
    StoreUnavailableError,
    WorkspaceChangedError,
)
from perago.model.workspace import Download, Signature, Upload, problem_with

MIB = 1 << 20
LARGE = 40 * MIB + 12_345


class Place:
    """A repository of its own, with a gateway to it and files on either side."""

    def __init__(self, server, directory, *, endpoint=None, cache=None):
        self.access = LakeFSConfig(
            endpoint or server.endpoint,
            server.access_key_id,
            server.secret_access_key,
            storage_namespace=server.storage_namespace,
        )
        self.directory = directory
        self.repository = f"bytes-{uuid.uuid4().hex[:12]}"
        self.gateway = Transfers(self.access, cache)
        self.store = LakeFSStore(replace(self.access, endpoint=server.endpoint))
        self.store.create_repository(self.repository)

    def close(self):
        self.gateway.close()
        self.store.close()

    def upload_of(self, key, data):
        path = self.directory / f"source-{uuid.uuid4().hex}"
        path.write_bytes(data)
        return Upload(key, path, Signature.of(path.stat()))

    def put(self, objects, progress=None):
        uploads = [self.upload_of(key, data) for key, data in objects.items()]
        return self.gateway.upload(self.repository, "main", uploads, progress)

    def commit(self):
        return self.store.commit(self.repository, "main", message="", metadata={}).id

    def entries(self, ref="main"):
        return {entry.key: entry for entry in self.store.list_objects(self.repository, ref)}

    def get(self, ref="main", progress=None):
        """Fetch everything: what was fetched, and the files' bytes by key."""
        target = self.new_directory()
        wanted = [Download(e, target / str(n)) for n, e in enumerate(self.entries(ref).values())]
        fetched = self.gateway.download(self.repository, ref, wanted, progress)
        found = {Path(one.path).name: one.entry.key for one in wanted}
        files = {found[path.name]: path.read_bytes() for path in target.iterdir()}
        assert {file.key: file.sha256 for file in fetched.files} == {
            key: hashlib.sha256(data).hexdigest() for key, data in files.items()
        }
        return fetched, files

    def new_directory(self):
        made = self.directory / f"workspace-{uuid.uuid4().hex}"
        made.mkdir()
        return made

    def where_the_server_keeps(self, key):
        return Path(self.entries()[key].location.removeprefix("local://"))


@pytest.fixture
def place(lakefs_server, tmp_path):
    with closing(Place(lakefs_server, tmp_path)) as place:
        yield place


@pytest.fixture
def cached(lakefs_server, tmp_path):
    """As ``place``, with a cache."""
    with (
        closing(ObjectCache(tmp_path / "cache", limit_bytes=1024 * MIB)) as cache,
        closing(Place(lakefs_server, tmp_path, cache=cache)) as place,
    ):
        yield place


@pytest.fixture
def wire(lakefs_server):
    with FaultyWire(lakefs_server.endpoint) as wire:
        yield wire


@pytest.fixture
def wired(lakefs_server, wire, tmp_path):
    """As ``place``, with objects' bytes going over ``wire``."""
    with closing(Place(lakefs_server, tmp_path, endpoint=wire.endpoint)) as place:
        yield place


@pytest.fixture
def in_a_hurry(monkeypatch):
    quick = replace(client.TRANSFER_BACKOFF, first=0.01)
    monkeypatch.setattr(client, "TRANSFER_BACKOFF", quick)


# --- there and back ----------------------------------------------------------------------------

ODD_KEYS = [
    *(f"a{chr(code)}b" for code in range(0x20, 0x7F) if chr(code) != "/"),
    *(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "./"),
    *("%2F", "a%20b", "%zz", "a+b c", "a?b=c&d#e", ".hidden", "...", "a..", "a/..b/c", "~/x"),
    *("grüße/日本", "😀", "e\u0301", "é", "\u2028", "\u200b", "\ufeff", "\u00a0", "\ufffe"),
    *("x" * 255, "/".join(["d" * 100] * 10), "nowhere@main", "main", "_lakefs", "a\\b"),
]


def test_every_key_a_workspace_may_have_goes_there_and_back_as_it_is(place):
    objects = {key: key.encode() for key in ODD_KEYS}
    assert not any(problem_with(key) for key in objects)
    place.put(objects)
    assert set(place.entries()) == set(objects)
    assert place.get()[1] == objects


@pytest.mark.parametrize("size", [0, 1, 8 * MIB, 8 * MIB + 1, LARGE])
def test_objects_of_any_size_go_there_and_back(place, size):
    data = os.urandom(size)
    sent = place.put({"object": data})
    fetched, files = place.get()
    assert files == {"object": data}
    assert place.entries()["object"].size == size
    for moved in (sent, fetched.moved):
        assert (moved.objects, moved.bytes) == (1, size)


def test_a_large_file_put_again_is_no_change(place):
    data = os.urandom(LARGE)
    place.put({"object": data})
    place.commit()
    place.put({"object": data})
    assert place.store.uncommitted(place.repository, "main") == []


def test_progress_counts_the_bytes_of_large_objects_as_they_come(place):
    for move in (
        lambda told: place.put({"small": b"12", "large": os.urandom(LARGE)}, told),
        lambda told: place.get(progress=told),
    ):
        told = []
        move(told.append)
        assert (told[-1].objects, told[-1].bytes) == (2, LARGE + 2)
        assert (told[-1].total_objects, told[-1].total_bytes) == (2, LARGE + 2)
        assert any(0 < one.bytes - 2 < LARGE for one in told)
        assert [one.bytes for one in told] == sorted(one.bytes for one in told)


def test_objects_that_other_clients_sent_in_parts_are_whole(place):
    """Their checksum looks like an md5 of their bytes, and isn't."""
    store = S3Store(
        place.repository,
        endpoint=place.access.endpoint,
        access_key_id=place.access.access_key_id,
        secret_access_key=place.access.secret_access_key,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    objects = {"one part": os.urandom(1000), "three parts": os.urandom(12 * MIB)}
    for key, data in objects.items():
        obstore.put(store, f"main/{key}", [data], use_multipart=True, chunk_size=5 * MIB)
    assert place.get()[1] == objects


def test_what_the_environment_says_of_another_s3_does_not_matter(place, monkeypatch):
    for name, value in {
        "AWS_ACCESS_KEY_ID": "another",
        "AWS_SECRET_ACCESS_KEY": "another",
        "AWS_SESSION_TOKEN": "another",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_REGION": "eu-central-1",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_S3_EXPRESS": "true",
        "AWS_UNSIGNED_PAYLOAD": "false",
        "AWS_REQUEST_PAYER": "true",
    }.items():
        monkeypatch.setenv(name, value)
    place.put({"a": b"1"})
    assert place.get()[1] == {"a": b"1"}


_FETCH_AND_SEND = """
import sys
from pathlib import Path
from perago.adapters.lakefs.client import LakeFSConfig
from perago.adapters.lakefs.transfers import Transfers
from perago.model.workspace import Download, Signature, Upload
from perago.model.commit import ObjectEntry

endpoint, key_id, secret, repository, source, target = sys.argv[1:]
gateway = Transfers(LakeFSConfig(endpoint, key_id, secret), None)
stat = Path(source).stat()
gateway.upload(repository, "main", [Upload("large", Path(source), Signature.of(stat))], None)
entry = ObjectEntry("large", stat.st_size, "")
gateway.download(repository, "main", [Download(entry, target)], None)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")).split()[1])
"""


@pytest.mark.slow
def test_an_object_larger_than_the_memory_it_may_take_goes_there_and_back(place):
    source, target = place.directory / "source", place.new_directory() / "large"
    data = os.urandom(16 * MIB) * 20
    source.write_bytes(data)
    access = place.access
    done = subprocess.run(
        [
            *(sys.executable, "-c", _FETCH_AND_SEND),
            *(access.endpoint, access.access_key_id, access.secret_access_key),
            *(place.repository, str(source), str(target)),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    assert target.read_bytes() == data
    assert int(done.stdout) * 1024 < 250 * MIB


# --- the cache ---------------------------------------------------------------------------------


def test_a_second_fetch_at_the_same_commit_moves_no_object_bytes(cached):
    objects = {"a": b"1", "empty": b"", "b": os.urandom(100_000), "large": os.urandom(LARGE)}
    cached.put(objects)
    ref = cached.commit()
    first, _ = cached.get(ref)
    assert (first.moved.objects, first.moved.bytes) == (4, 100_001 + LARGE)
    second, files = cached.get(ref)
    assert files == objects
    assert (second.moved.objects, second.moved.bytes) == (0, 0)


def test_a_fetch_moves_only_what_this_machine_has_not_got(cached):
    cached.put({f"file-{n}": os.urandom(1000) for n in range(20)})
    cached.get(cached.commit())
    cached.put({"file-7": b"new", "another": b"one"})
    fetched, files = cached.get(cached.commit())
    assert (fetched.moved.objects, fetched.moved.bytes) == (2, 6)
    assert len(files) == 21


def test_progress_also_counts_what_comes_from_the_cache(cached):
    cached.put({"a": b"12", "large": os.urandom(LARGE)})
    cached.get()
    told = []
    cached.get(progress=told.append)
    assert (told[-1].objects, told[-1].bytes) == (2, LARGE + 2)


# --- bytes that are not the ones ---------------------------------------------------------------


def test_bytes_that_were_damaged_on_the_servers_disk_are_refused_by_name(cached):
    cached.put({"good": b"good", "songs/bad": b"these were the bytes"})
    cached.where_the_server_keeps("songs/bad").write_bytes(b"these were the byteS")
    wanted = cached.new_directory() / "bad"
    download = [Download(cached.entries()["songs/bad"], wanted)]
    for _ in range(2):
        with pytest.raises(CorruptObjectError, match=r"songs/bad"):
            cached.gateway.download(cached.repository, "main", download, None)
        assert not wanted.exists()


@pytest.mark.parametrize("size", [100, LARGE])
def test_an_object_of_another_size_than_listed_is_refused_by_name(place, size):
    place.put({"songs/a": os.urandom(size)})
    wanted = place.new_directory() / "a"
    entry = replace(place.entries()["songs/a"], size=size + 1)
    with pytest.raises(CorruptObjectError, match=r"songs/a"):
        place.gateway.download(place.repository, "main", [Download(entry, wanted)], None)
    assert not wanted.exists()


def test_bytes_that_were_changed_on_the_way_are_fetched_again(wired, wire):
    def change_a_byte(exchange):
        answer = exchange.forward().keep()
        first, *rest = answer.body
        answer.body = [bytes([first[0] ^ 1]) + first[1:], *rest]
        exchange.reply(answer)

    wired.put({"a": b"these are the bytes"})
    rule = wire.on(change_a_byte, method="GET")
    assert wired.get()[1] == {"a": b"these are the bytes"}
    assert rule.fired == 1


def change_what_is_sent(exchange):
    exchange.keep_body()
    first, *rest = exchange._body  # noqa: SLF001 - no wire does this by itself
    exchange._body = [bytes([first[0] ^ 1]) + first[1:], *rest]  # noqa: SLF001
    healthy(exchange)


@pytest.mark.parametrize("size", [100, LARGE])
def test_an_upload_that_was_changed_on_the_way_is_sent_again(wired, wire, in_a_hurry, size):
    data = os.urandom(size)
    rule = wire.on(change_what_is_sent, method="PUT")
    wired.put({"songs/a": data})
    assert rule.fired == 1
    assert wired.get()[1] == {"songs/a": data}


def test_an_upload_that_is_always_changed_on_the_way_is_an_error(wired, wire, in_a_hurry):
    wire.on(change_what_is_sent, method="PUT", times=None)
    with pytest.raises(StoreUnavailableError, match="other bytes than were sent"):
        wired.put({"songs/a": b"the bytes"})


# --- networks, disks and credentials -----------------------------------------------------------


@pytest.mark.parametrize("size", [100_000, LARGE])
def test_a_download_that_never_gets_through_leaves_no_file(wired, wire, in_a_hurry, size):
    wired.put({"songs/a": os.urandom(size)})
    wire.on(cut_answer(50_000), method="GET", times=None)
    wanted = wired.new_directory() / "a"
    with pytest.raises(StoreUnavailableError, match=r"songs/a"):
        wired.gateway.download(
            wired.repository, "main", [Download(wired.entries()["songs/a"], wanted)], None
        )
    assert not wanted.exists()


def test_a_large_object_is_read_on_where_it_was_cut(wired, wire, in_a_hurry):
    data = os.urandom(LARGE)
    wired.put({"a": data})
    wire.clear()
    rules = [wire.on(cut_answer(5 * MIB), method="GET", times=1) for _ in range(3)]
    assert wired.get()[1] == {"a": data}
    assert [rule.fired for rule in rules] == [1, 1, 1]
    assert wire.counts(method="GET") == 3 + 3  # three parts, and the rest of those that were cut


@contextmanager
def files_of_at_most(size):
    """What a full disk looks like to whoever writes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [3 * MIB, LARGE])
def test_a_full_disk_is_told_as_such_and_leaves_no_file(place, size):
    place.put({"a": os.urandom(size)})
    wanted = place.new_directory() / "a"
    download = [Download(place.entries()["a"], wanted)]
    with files_of_at_most(2 * MIB), pytest.raises(StoreFullError, match=str(wanted)):
        place.gateway.download(place.repository, "main", download, None)
    assert not wanted.exists()


def test_a_file_that_changes_while_it_is_sent_does_not_become_an_object(place):
    upload = place.upload_of("a", os.urandom(LARGE))

    def touch(_):
        with upload.path.open("ab") as file:
            file.write(b"more")

    with pytest.raises(WorkspaceChangedError, match=upload.path.name):
        place.gateway.upload(place.repository, "main", [upload], touch)
    assert place.entries() == {}


def test_wrong_credentials_are_told_as_such_without_showing_them(lakefs_server, place):
    place.put({"a": b"1"})
    wrong = replace(place.access, secret_access_key="not-the-secret-at-all")
    with closing(Transfers(wrong, None)) as gateway:
        wanted = [Download(place.entries()["a"], place.new_directory() / "a")]
        with pytest.raises(StoreAccessError, match="SignatureDoesNotMatch") as refused:
            gateway.download(place.repository, "main", wanted, None)
        with pytest.raises(StoreAccessError):
            gateway.upload(place.repository, "main", [place.upload_of("b", b"2")], None)
    assert "not-the-secret-at-all" not in str(refused.value)


@pytest.mark.parametrize("size", [1, LARGE])
def test_what_is_not_there_is_a_definite_no(place, size):
    place.put({"a": os.urandom(size)})
    entry = place.entries()["a"]
    wanted = [Download(entry, place.new_directory() / "a")]
    with pytest.raises(StoreRefusedError, match="404"):
        place.gateway.download(place.repository, "0" * 64, wanted, None)
    with pytest.raises(StoreRefusedError, match="404"):
        place.gateway.upload(
            place.repository, "nowhere", [place.upload_of("a", os.urandom(size))], None
        )


def test_a_key_that_lakefs_finds_too_long_is_refused_by_its_name(place):
    longest = "/".join(["d" * 204] * 5)
    assert len(longest) == 1024
    place.put({longest: b"1"})
    with pytest.raises(StoreRefusedError, match="ddddde"):
        place.put({"a": b"2", f"{longest}e": b"2"})
    assert list(place.entries()) == [longest]


def test_no_server_is_told_with_its_address(place, in_a_hurry):
    nowhere = replace(place.access, endpoint="http://127.0.0.1:9")
    with (
        closing(Transfers(nowhere, None)) as gateway,
        pytest.raises(StoreUnavailableError, match="no connection to lakeFS at http://127"),
    ):
        gateway.upload(place.repository, "main", [place.upload_of("a", b"1")], None)
