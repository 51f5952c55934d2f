"""Keys that another client put on a branch: each is a file exactly, or refused by its name.

lakeFS takes nearly any string as an object's key. They are written here with lakeFS's own client,
which asks nobody.
"""

from base64 import b64encode
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.lakefs import store_on

from perago.adapters.local.engine import LocalEngine, folds_case
from perago.errors import UnsafeKeyError
from perago.model.workspace import MARKER_NAME, WorkspaceRef
from perago.testing.conformance.store import StoreBench


@pytest.fixture
def store(lakefs_server):
    store = store_on(lakefs_server)
    yield store
    store.close()


@pytest.fixture
def bench(store, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    return StoreBench(store, files)


@pytest.fixture
def put(lakefs_server, bench):
    """Put an object on main with lakeFS's own client."""
    from lakefs_sdk import Configuration
    from lakefs_sdk.client import LakeFSClient

    client = LakeFSClient(
        Configuration(
            host=f"{lakefs_server.endpoint}/api/v1",
            username=lakefs_server.access_key_id,
            password=lakefs_server.secret_access_key,
        )
    )
    yield lambda key, data=b"theirs": client.objects_api.upload_object(
        bench.repository, "main", key, content=data
    )
    client.branches_api.api_client.rest_client.pool_manager.clear()


@pytest.fixture
def put_raw(lakefs_server, bench):
    """Put an object on main under a key given as it stands in an address, percent signs and all."""

    def put_raw(quoted):
        user = f"{lakefs_server.access_key_id}:{lakefs_server.secret_access_key}".encode()
        connection = HTTPConnection(urlsplit(lakefs_server.endpoint).netloc, timeout=30)
        connection.request(
            "POST",
            f"/api/v1/repositories/{bench.repository}/branches/main/objects?path={quoted}",
            b"theirs",
            {
                "Authorization": f"Basic {b64encode(user).decode()}",
                "Content-Type": "application/octet-stream",
            },
        )
        assert connection.getresponse().status == 201
        connection.close()

    return put_raw


@pytest.fixture
def open_workspace(bench, tmp_path):
    """Open what is on main as a task's workspace, in a directory of its own."""
    directory = tmp_path / "attempt" / "files"
    directory.mkdir(parents=True)

    def open_workspace(prefix=""):
        commit = bench.store.commit(bench.repository, "main", message="theirs", metadata={})
        workspace = WorkspaceRef(
            repository=bench.repository, branch="main", ref_type="commit", ref=commit.id
        )
        LocalEngine().open(bench.store, workspace, prefix, directory, lambda _transfer: None)
        return directory

    return open_workspace


def _files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


UNSAFE = [
    "../outside",
    "../../outside",
    "a/../../outside",
    "..",
    ".",
    "./a",
    "a/./b",
    "/absolute",
    "//twice",
    "a//b",
    "trailing/",
    "a/",
    "line\nbreak",
    "tab\tstop",
    "bell\x07",
    "escape\x1b[31m",
    "delete\x7f",
    "next\x85line",
    "nul\x00byte",
    MARKER_NAME,
    f"a/{MARKER_NAME}",
    "n" * 256,
    "é" * 128,
    "n" * 1024,
]


@pytest.mark.parametrize("key", UNSAFE, ids=ascii)
def test_a_key_that_cannot_be_a_file_is_refused_by_name_before_anything_is_written(
    *, put, open_workspace, tmp_path, key
):
    put("harmless")
    put(key)
    before = {path for path in tmp_path.rglob("*") if "files" not in path.parts[:-1]}
    with pytest.raises(UnsafeKeyError) as refused:
        open_workspace()
    assert repr(key) in refused.value.message
    assert _files(tmp_path / "attempt") == {}
    assert {p for p in tmp_path.rglob("*") if "files" not in p.parts[:-1]} == before


@pytest.mark.parametrize("key", ["songs/../x", "songs//x", "songs/", "songs/x/"], ids=ascii)
def test_a_prefix_makes_no_key_below_it_any_safer(put, open_workspace, tmp_path, key):
    put("songs/a")
    put(key)
    with pytest.raises(UnsafeKeyError) as refused:
        open_workspace("songs")
    assert repr(key) in refused.value.message
    assert _files(tmp_path / "attempt") == {}


@pytest.mark.parametrize(
    "quoted",
    ["%FF", "%ED%A0%80", "a/%C3"],
    ids=["no UTF-8", "an unpaired surrogate", "half a letter"],
)
def test_a_key_that_is_no_text_is_refused_before_anything_is_written(
    *, put_raw, put, open_workspace, tmp_path, quoted
):
    """The server keeps such a key as it is, and lists it with U+FFFD for what it can't show."""
    put("harmless")
    put_raw(quoted)
    with pytest.raises(UnsafeKeyError, match="\ufffd"):
        open_workspace()
    assert _files(tmp_path / "attempt") == {}


def test_a_file_cannot_be_a_directory_as_well(put, open_workspace, tmp_path):
    put("a")
    put("a/b")
    with pytest.raises(UnsafeKeyError, match=r"'a'.*'a/b' needs it as a directory"):
        open_workspace()
    assert _files(tmp_path / "attempt") == {}


def test_names_that_differ_only_in_case_are_two_files_or_refused(put, open_workspace, tmp_path):
    put("Song", b"upper")
    put("song", b"lower")
    if folds_case(tmp_path):
        with pytest.raises(UnsafeKeyError, match="can't tell it from"):
            open_workspace()
        assert _files(tmp_path / "attempt") == {}
    else:
        assert _files(open_workspace()) == {"Song": b"upper", "song": b"lower"}


HARMLESS = [
    "a",
    "a/b/c/d/e/f",
    "with space",
    " leading and trailing ",
    "percent%2Fsign%",
    "plus+and&ampersand=?#",
    "quote'\"`",
    "back\\slash",
    "-dash",
    "~tilde",
    "$(command)",
    "*?[x]",
    "...",
    ".hidden",
    "..two",
    "ünïcödé",
    "u\u0308 decomposed",
    "日本語/曲",
    "🎵",
    "\u202eright to left",
    "no-break\u00a0space",
    "CON",
    "aux.txt",
    "n" * 255,
    "/".join(["d" * 92] * 11),  # 1,022 bytes; lakeFS takes 1,024
    "main",
    "_lakefs_other/x",
]


def test_every_other_key_is_exactly_a_file(put, open_workspace):
    theirs = {key: f"bytes of {key}".encode() for key in HARMLESS}
    del theirs["a"]  # a/b/c/d/e/f needs it as a directory
    for key, data in theirs.items():
        put(key, data)
    assert _files(open_workspace()) == theirs


@pytest.mark.parametrize("key", HARMLESS, ids=ascii)
def test_what_we_upload_under_a_key_is_read_back_under_it_and_can_be_deleted(bench, key):
    bench.commit("main", {key: b"ours"})
    assert bench.content("main") == {key: b"ours"}
    bench.commit("main", {"another": b""}, deletes=[key])
    assert bench.keys("main") == ["another"]


def test_keys_that_look_alike_stay_apart(put, open_workspace):
    alike = {"é": b"composed", "e\u0301": b"decomposed", "é ": b"with a space", "%C3%A9": b"quoted"}
    for key, data in alike.items():
        put(key, data)
    assert _files(open_workspace()) == alike


def test_hooks_are_no_part_of_a_workspace(put, open_workspace):
    put("_lakefs_actions/theirs.yaml", b"name: theirs\non:\n  post-commit:\nhooks: []\n")
    put("a", b"a")
    assert _files(open_workspace()) == {"a": b"a"}
