"""Whatever the network does to a request, the adapter says what it knows, and no more.

Every mutating call of the store port meets every fault, on a wire before a real lakeFS. What really
happened is read on another connection, without the wire.
"""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from support.wire import (
    FaultyWire,
    answer,
    answer_after_applying,
    cut_answer,
    cut_request,
    delay,
    drop_answer,
    drop_request,
    duplicate,
)
from support.worker import HeldExchange

from perago.adapters.lakefs.client import LakeFSConfig, Timeouts
from perago.adapters.lakefs.store import LakeFSStore
from perago.errors import (
    AnswerLostError,
    BranchExistsError,
    BranchNotFoundError,
    RepositoryExistsError,
    StoreRefusedError,
    StoreUnavailableError,
)
from perago.model.workspace import Download
from perago.testing.conformance.store import StoreBench

pytestmark = pytest.mark.usefixtures("hasty")

PATIENCE = 0.8
"""How long these clients wait for an answer, in seconds; others wait much longer."""

MIB = 1 << 20


@pytest.fixture
def wire(lakefs_server):
    with FaultyWire(lakefs_server.endpoint) as wire:
        yield wire
        assert not wire.unfired, "a fault that met nothing proves nothing"


@pytest.fixture
def connect(lakefs_server):
    """Make a store that reaches the server at an endpoint."""
    made = []

    def connect(endpoint, timeouts):
        access = LakeFSConfig(
            endpoint,
            lakefs_server.access_key_id,
            lakefs_server.secret_access_key,
            storage_namespace=lakefs_server.storage_namespace,
            timeouts=timeouts,
        )
        made.append(LakeFSStore(access))
        return made[-1]

    yield connect
    for store in made:
        store.close()


@pytest.fixture
def store(connect, wire):
    """Through the wire."""
    return connect(wire.endpoint, Timeouts())


@pytest.fixture
def impatient(connect, wire):
    """Through the wire, and soon gives up."""
    return connect(wire.endpoint, Timeouts(connect=PATIENCE, read=PATIENCE, mutation=PATIENCE))


@pytest.fixture
def bench(connect, lakefs_server, tmp_path):
    """A repository with something to change, without the wire."""
    files = tmp_path / "files"
    files.mkdir()
    bench = StoreBench(connect(lakefs_server.endpoint, Timeouts()), files)
    bench.commit("main", {"kept": b"kept", "old": b"old"})
    return bench


# --- mutations of branches and repositories -------------------------------------------------------


@dataclass(frozen=True)
class Mutation:
    """One method of the port: what has to be there, how it is sent, and whether it was applied."""

    name: str
    method: str
    path: str
    prepare: Callable[[StoreBench], Any]
    send: Callable[[LakeFSStore, StoreBench, Any], object]
    applied: Callable[[StoreBench, Any], bool]
    twice: type[Exception] | None
    """What the server's answer to a second copy of the request means, if it is a no."""
    request_body: bool = True
    answer_body: bool = True

    def __str__(self):
        return self.name


def _new_name(_bench):
    return f"new-{uuid.uuid4().hex[:12]}"


def _side_branch(bench):
    bench.store.create_branch(bench.repository, "side", bench.head.id)


def _uncommitted(bench):
    bench.put("main", {"new": b"new"})
    return bench.head.id


def _abandoned(bench):
    target = bench.head.id
    bench.commit("main", {"abandoned": b""})
    return target


MUTATIONS = [
    Mutation(
        "create_repository",
        "POST",
        r"/repositories$",
        _new_name,
        lambda store, _bench, name: store.create_repository(name),
        lambda bench, name: name in bench.store.repositories(),
        RepositoryExistsError,
    ),
    Mutation(
        "create_branch",
        "POST",
        r"/branches$",
        lambda bench: bench.head.id,
        lambda store, bench, at: store.create_branch(bench.repository, "side", at, hidden=True),
        lambda bench, _at: "side" in _branches(bench),
        BranchExistsError,
    ),
    Mutation(
        "delete_branch",
        "DELETE",
        r"/branches/side$",
        _side_branch,
        lambda store, bench, _: store.delete_branch(bench.repository, "side"),
        lambda bench, _: "side" not in _branches(bench),
        BranchNotFoundError,
        request_body=False,
        answer_body=False,
    ),
    Mutation(
        "delete_objects",
        "POST",
        r"/branches/main/objects/delete",
        lambda _bench: None,
        lambda store, bench, _: store.delete_objects(bench.repository, "main", ["old"]),
        lambda bench, _: bench.keys("main") == ["kept"],
        None,
    ),
    Mutation(
        "commit",
        "POST",
        r"/branches/main/commits$",
        _uncommitted,
        lambda store, bench, _: store.commit(bench.repository, "main", message="m", metadata={}),
        lambda bench, before: bench.head.parents == (before,),
        StoreRefusedError,
    ),
    Mutation(
        "merge",
        "POST",
        r"/refs/[0-9a-f]{64}/merge/main$",
        lambda bench: (bench.head.id, bench.staged({"new": b"new"}).id),
        lambda store, bench, commits: store.merge(
            bench.repository, commits[1], "main", expected_head=None, message="m", metadata={}
        ),
        lambda bench, commits: commits[0] in _history(bench)[1:],
        None,
    ),
    Mutation(
        "relocate",
        "PUT",
        r"/branches/main/hard_reset",
        _abandoned,
        lambda store, bench, to: store.relocate(bench.repository, "main", to, expected_head=None),
        lambda bench, to: bench.head.id == to,
        None,
        request_body=False,
        answer_body=False,
    ),
]

EVERY_MUTATION = pytest.mark.parametrize("mutation", MUTATIONS, ids=str)


def _branches(bench):
    return [branch.name for branch in bench.store.branches(bench.repository)]


def _history(bench):
    return [commit.id for commit in bench.store.history(bench.repository, "main")]


def _assert_sent_once(wire, mutation):
    assert wire.counts(method=mutation.method, path=mutation.path) == 1


@EVERY_MUTATION
@pytest.mark.parametrize(
    ("fault", "is_applied"),
    [
        pytest.param(drop_answer, True, id="answer dropped"),
        pytest.param(answer_after_applying(502), True, id="502 after applying"),
        pytest.param(answer_after_applying(504, b"<html>"), True, id="504 after applying"),
        pytest.param(drop_request, False, id="request dropped"),
        pytest.param(answer(503), False, id="503 without applying"),
        pytest.param(answer(429), False, id="429 without applying"),
    ],
)
def test_without_the_servers_own_word_there_is_no_telling(
    *, bench, store, wire, mutation, fault, is_applied
):
    state = mutation.prepare(bench)
    wire.on(fault, method=mutation.method, path=mutation.path)
    with pytest.raises(AnswerLostError):
        mutation.send(store, bench, state)
    assert mutation.applied(bench, state) is is_applied
    _assert_sent_once(wire, mutation)


@EVERY_MUTATION
@pytest.mark.parametrize("when", ["before", "after"])
def test_nobody_waits_longer_than_the_time_out(bench, impatient, wire, mutation, when):
    state = mutation.prepare(bench)
    held = HeldExchange(when)
    wire.on(held, method=mutation.method, path=mutation.path)
    with pytest.raises(AnswerLostError):
        mutation.send(impatient, bench, state)
    # A request that was only slow still arrives, after its sender has gone.
    held.release()
    _until(lambda: mutation.applied(bench, state))
    _assert_sent_once(wire, mutation)


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.request_body], ids=str)
def test_a_request_cut_half_way_is_not_applied(bench, store, wire, mutation):
    state = mutation.prepare(bench)
    wire.on(cut_request(5), method=mutation.method, path=mutation.path)
    with pytest.raises(AnswerLostError):
        mutation.send(store, bench, state)
    assert not mutation.applied(bench, state)
    _assert_sent_once(wire, mutation)


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.answer_body], ids=str)
def test_an_answer_cut_half_way_is_no_answer(bench, store, wire, mutation):
    state = mutation.prepare(bench)
    wire.on(cut_answer(5), method=mutation.method, path=mutation.path)
    with pytest.raises(AnswerLostError):
        mutation.send(store, bench, state)
    assert mutation.applied(bench, state)
    _assert_sent_once(wire, mutation)


@EVERY_MUTATION
def test_of_a_request_that_arrived_twice_the_first_answer_counts_if_it_comes(
    bench, store, wire, mutation
):
    state = mutation.prepare(bench)
    wire.on(duplicate("first"), method=mutation.method, path=mutation.path)
    mutation.send(store, bench, state)
    assert mutation.applied(bench, state)
    _assert_sent_once(wire, mutation)


@EVERY_MUTATION
def test_the_answer_to_a_second_copy_is_told_as_the_server_says_it(bench, store, wire, mutation):
    """The protocol reads a refused publication back for this very reason."""
    state = mutation.prepare(bench)
    wire.on(duplicate("second"), method=mutation.method, path=mutation.path)
    if mutation.twice is None:
        mutation.send(store, bench, state)
    else:
        with pytest.raises(mutation.twice):
            mutation.send(store, bench, state)
    assert mutation.applied(bench, state)
    _assert_sent_once(wire, mutation)


@EVERY_MUTATION
def test_a_server_that_is_not_there_was_sent_nothing(bench, connect, mutation):
    state = mutation.prepare(bench)
    nowhere = connect("http://127.0.0.1:1", Timeouts(connect=PATIENCE))
    with pytest.raises(StoreUnavailableError, match="no connection to lakeFS at"):
        mutation.send(nowhere, bench, state)
    assert not mutation.applied(bench, state)


# --- uploads: safe to send again, and sent again --------------------------------------------------

HARMLESS = [
    pytest.param(drop_answer, id="answer dropped"),
    pytest.param(drop_request, id="request dropped"),
    pytest.param(answer(503), id="503 without applying"),
    pytest.param(answer_after_applying(502), id="502 after applying"),
    pytest.param(duplicate("first"), id="duplicated, first answer"),
    pytest.param(duplicate("second"), id="duplicated, second answer"),
]


@pytest.mark.parametrize("fault", [*HARMLESS, pytest.param(cut_request(1000), id="request cut")])
def test_a_small_file_is_uploaded_whatever_happens_on_the_way_once(bench, store, wire, fault):
    data = bytes(range(256)) * 64
    wire.on(fault, method="PUT", path="/new$")
    store.upload(bench.repository, "main", [bench.upload_of("new", data)])
    assert bench.content("main") == {"kept": b"kept", "new": data, "old": b"old"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_small_file_is_uploaded_again_when_the_server_is_silent(bench, impatient, wire, when):
    wire.on(delay(3 * PATIENCE, when), method="PUT", path="/new$")
    impatient.upload(bench.repository, "main", [bench.upload_of("new", b"new")])
    assert wire.counts(method="PUT", path="/new$") == 2
    assert bench.content("main")["new"] == b"new"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("POST", r"\?uploads", id="begin"),
        pytest.param("PUT", "partNumber=2", id="part"),
        pytest.param("POST", "uploadId=", id="complete"),
    ],
)
@pytest.mark.parametrize("fault", HARMLESS)
def test_a_large_file_is_uploaded_whatever_happens_on_the_way_once(
    *, bench, store, wire, method, path, fault
):
    data = uuid.uuid4().bytes * (MIB // 16) * 20
    wire.on(fault, method=method, path=path)
    store.upload(bench.repository, "main", [bench.upload_of("new", data)])
    assert bench.content("main")["new"] == data


OPAQUE = (
    b'<?xml version="1.0" encoding="UTF-8"?><CompleteMultipartUploadResult>'
    b"<Location>x</Location><Bucket>x</Bucket><Key>x</Key><ETag>&quot;encrypted-3&quot;</ETag>"
    b"</CompleteMultipartUploadResult>"
)


def test_a_large_file_whose_etag_tells_nothing_is_compared_part_by_part(bench, store, wire):
    data = uuid.uuid4().bytes * (MIB // 16) * 20
    wire.on(answer_after_applying(200, OPAQUE), method="POST", path="uploadId=")
    store.upload(bench.repository, "main", [bench.upload_of("new", data)])
    assert wire.counts(method="GET", path="/new$") == 3
    assert wire.counts(method="POST", path="uploadId=") == 1
    assert bench.content("main")["new"] == data


def test_a_large_file_that_arrived_with_other_bytes_is_sent_again(bench, store, wire):
    data = uuid.uuid4().bytes * (MIB // 16) * 20
    wire.on(answer_after_applying(200, OPAQUE), method="POST", path="uploadId=")
    wire.on(
        answer(206, bytes(8 * MIB), {"Content-Range": f"bytes 0-{8 * MIB - 1}/{20 * MIB}"}),
        method="GET",
        path="/new$",
    )
    store.upload(bench.repository, "main", [bench.upload_of("new", data)])
    assert wire.counts(method="POST", path="uploadId=") == 2
    assert bench.content("main")["new"] == data


def test_a_part_cut_half_way_is_sent_again(bench, store, wire):
    data = uuid.uuid4().bytes * (MIB // 16) * 20
    wire.on(cut_request(MIB), method="PUT", path="partNumber=1")
    store.upload(bench.repository, "main", [bench.upload_of("new", data)])
    assert bench.content("main")["new"] == data


@pytest.mark.slow
def test_an_upload_that_never_gets_through_ends_as_unavailable(bench, store, wire):
    wire.on(answer(503), method="PUT", path="/new$", times=None)
    with pytest.raises(StoreUnavailableError, match="uploading 'new'"):
        store.upload(bench.repository, "main", [bench.upload_of("new", b"new")])
    assert 2 <= wire.counts(method="PUT", path="/new$") <= 10
    assert bench.keys("main") == ["kept", "old"]


# --- reads: tried again for a while ---------------------------------------------------------------

READS = [
    pytest.param(r"/branches/main$", lambda s, b: s.head(b.repository, "main"), id="head"),
    pytest.param(r"/commits/", lambda s, b: s.get_commit(b.repository, b.head.id), id="get_commit"),
    pytest.param(
        r"/refs/main/commits", lambda s, b: list(s.history(b.repository, "main")), id="history"
    ),
    pytest.param(
        r"/refs/main/objects/ls",
        lambda s, b: list(s.list_objects(b.repository, "main")),
        id="list_objects",
    ),
    pytest.param(r"/branches\?", lambda s, b: list(s.branches(b.repository)), id="branches"),
    pytest.param(r"/repositories\?", lambda s, _: s.repositories(), id="repositories"),
    pytest.param(
        r"/branches/main/diff", lambda s, b: s.uncommitted(b.repository, "main"), id="uncommitted"
    ),
    pytest.param(
        r"/diff/", lambda s, b: list(s.diff(b.repository, b.root.id, b.head.id)), id="diff"
    ),
]
LOST = [
    pytest.param(drop_answer, id="answer dropped"),
    pytest.param(drop_request, id="request dropped"),
    pytest.param(cut_answer(20), id="answer cut"),
    pytest.param(answer(503), id="503"),
    pytest.param(answer(429), id="429"),
]


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize(("path", "read"), READS)
def test_a_read_that_is_lost_twice_is_asked_again(*, bench, store, wire, path, read, fault):
    expected = read(bench.store, bench)
    wire.on(fault, method="GET", path=path, times=2)
    assert read(store, bench) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("path", "read"), READS)
def test_a_read_that_is_never_answered_ends_as_unavailable(bench, store, wire, path, read):
    wire.on(drop_answer, method="GET", path=path, times=None)
    with pytest.raises(StoreUnavailableError):
        read(store, bench)
    assert 2 <= wire.counts(method="GET", path=path) <= 10


def test_a_listing_goes_on_at_the_page_that_was_lost(bench, store, wire):
    from perago.adapters.lakefs import client

    keys = sorted(f"many/{n:04}" for n in range(client.PAGE + 10))
    bench.put("main", dict.fromkeys(keys, b""))
    wire.on(cut_answer(500), method="GET", path="objects/ls", skip=1)
    found = [entry.key for entry in store.list_objects(bench.repository, "main", prefix="many/")]
    assert found == keys
    assert wire.counts(method="GET", path="objects/ls") == 3


@pytest.mark.parametrize("size", [100_000, 20 * MIB], ids=["small", "in parts"])
@pytest.mark.parametrize(
    "fault",
    [
        *LOST[:2],
        pytest.param(cut_answer(50_000), id="answer cut"),
        pytest.param(answer(503), id="503"),
    ],
)
def test_a_download_is_whole_whatever_happens_on_the_way(
    *, bench, store, wire, tmp_path, size, fault
):
    data = (uuid.uuid4().bytes * (size // 16 + 1))[:size]
    bench.commit("main", {"new": data})
    (entry,) = bench.store.list_objects(bench.repository, "main", prefix="new")
    wire.on(fault, method="GET", path="/new", times=2)
    store.download(bench.repository, "main", [Download(entry, tmp_path / "new")])
    assert (tmp_path / "new").read_bytes() == data


def _until(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.05)
